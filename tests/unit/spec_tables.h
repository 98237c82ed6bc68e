// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The tables of the specifications, typed off row by row, are compared with the tables of the library: the rows of a
// page cover the message without a gap, every field of the library is a row, and every row that is not reserved is a
// field of the same name.
//
// A row is "offset[.bit] length[b] name the page's words"; b means bits, "26*" a list that has 26 bytes, "*" one that
// goes on to the end, and "-" instead of a name is reserved.
#pragma once

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <sstream>
#include <vector>

#include "lib/wire/llc_layout.h"
#include "smc/wire/cdc.h"
#include "smc/wire/clc.h"
#include "smc/wire/tcp_option.h"

namespace smc::test::tables {

using wire::Kind;

struct Range {
    unsigned start = 0, bits = 0;  // bits 0: a list
    std::string name;
    unsigned end = 0;  // end of a row; not compared

    bool operator==(const Range& other) const {
        return start == other.start && bits == other.bits && name == other.name;
    }
};

inline std::vector<Range> page(const char* text) {
    std::vector<Range> rows;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string offset, length, name;
        if (!(words >> offset >> length)) {
            continue;
        }
        words >> name;
        const auto dot = offset.find('.');
        const auto start = static_cast<unsigned>(std::stoul(offset)) * 8 +
                           (dot == std::string::npos ? 0 : static_cast<unsigned>(std::stoul(offset.substr(dot + 1))));
        const unsigned extent =
            length == "*" ? 0 : static_cast<unsigned>(std::stoul(length)) * (length.back() == 'b' ? 1 : 8);
        rows.push_back({start, length.back() == '*' ? 0 : extent, name, start + extent});
    }
    return rows;
}

template <class T, class Owner>
T type_of_member(T Owner::*);

template <class L>
void collect(std::vector<Range>& out, unsigned base, const std::string& prefix = "") {
    wire::for_each_row<L>([&](const auto& row) {
        using R = std::remove_cvref_t<decltype(row)>;
        const unsigned start = base + row.offset * 8U;
        if constexpr (R::kKind == Kind::kPart) {
            using T = decltype(type_of_member(R::kMember));
            collect<T>(out, start, prefix + row.name);
        } else if constexpr (R::kKind == Kind::kFlag) {
            out.push_back({start + static_cast<unsigned>(std::countl_zero(static_cast<std::uint8_t>(R::kMask))), 1,
                           prefix + row.name});
        } else if constexpr (R::kKind == Kind::kBits) {
            out.push_back({start + row.bit, row.bits, prefix + row.name});
        } else {
            out.push_back({start, row.bytes * 8U, prefix + row.name});
        }
    });
}

// Tables, each with the offset at which it starts.
template <class... L>
std::vector<Range> fields(std::initializer_list<unsigned> bases) {
    std::vector<Range> out;
    const unsigned* base = bases.begin();
    (collect<L>(out, 8 * *base++), ...);
    return out;
}

// `size`: bytes of the message, if its size is fixed.
inline void compare(const char* text, const std::vector<Range>& library, unsigned size = 0) {
    unsigned end = 0;
    for (const Range& row : page(text)) {
        INFO("row " << row.name << " at byte " << row.start / 8);
        CHECK(row.start == end);
        end = row.end;
        const bool known = std::find(library.begin(), library.end(), row) != library.end();
        CHECK(known == (row.name != "-"));
    }
    CHECK((size == 0 || end == size * 8));
    const auto rows = page(text);
    for (const Range& field : library) {
        INFO("field " << field.name << " at byte " << field.start / 8);
        CHECK(std::find(rows.begin(), rows.end(), field) != rows.end());
    }
}

}  // namespace smc::test::tables
