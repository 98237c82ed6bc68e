// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Reads the rows of the wire tables for people (smc/wire/describe.h): every row that is inside the message, whatever a
// decoder thinks of its value, and in the end the bytes that no row covers.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "smc/wire/clc.h"
#include "smc/wire/describe.h"
#include "smc/wire/llc.h"

namespace smc {

// The number only, as eight hexadecimal digits: a code means what the sender's operating system defines (v2.1, Decline,
// note 5).
std::string text(Reason reason);

}  // namespace smc

namespace smc::wire {

// "0x0a0b"
std::string hex(Bytes bytes);

// Types whose values are shown as numbers, although they have names.
template <class T>
constexpr bool kIsCode =
    std::is_same_v<T, Reason> || std::is_same_v<T, llc::AddLinkReason> || std::is_same_v<T, llc::DeleteLinkReason>;
// Types of sizes that are sent in compressed form.
template <class T>
constexpr bool kIsSize = std::is_same_v<T, BufferSize> || std::is_same_v<T, clc::Mtu>;

class RowReader {
 public:
    using Names = std::initializer_list<std::string_view>;

    // The tables describe the first `body` bytes of the message.
    RowReader(Bytes message, std::size_t body) : message_(message), body_(body), told_(message.size()) {}

    // Reads the rows of table L, which begins at `start` of the message, into `object` and `out`, but for those of
    // `without`. A list whose count is in another table has its size already; it is cut to those that the body holds.
    template <class L, class T>
    void read(std::size_t start, T& object, smc::Fields& out, Names without = {}) {
        Place place{start, {}, {}, without};
        read_rows<L>(place, object, out);
    }
    // The same as a group of its own. Nothing, if the table begins outside the message.
    template <class L, class T>
    void read_group(std::size_t start, T& object, smc::Fields& out, const char* name, const char* meaning) {
        if (start >= body_) {
            return;
        }
        smc::Fields group;
        read<L>(start, object, group);
        out.push_back({name, meaning, std::move(group), {}, start, {}});
    }
    // Bytes that need no row.
    void skip(std::size_t at, std::size_t bytes) { tell(at, bytes, 0xff); }

    [[nodiscard]] std::size_t body() const { return body_; }
    // Bits that no row covers and that are not zero: reserved ones, and those after all that is known.
    [[nodiscard]] Values untold() const;

 private:
    // Where a table begins, and what goes before the names and meanings of its rows.
    struct Place {
        std::size_t start;
        std::string prefix, meaning;
        Names without;
    };

    void tell(std::size_t at, std::size_t bytes, std::uint64_t mask) {
        for (std::size_t i = at; i < at + bytes; i++) {
            told_[i] |= static_cast<std::uint8_t>(mask);
        }
    }

    template <class L, class T>
    void read_rows(const Place& place, T& object, smc::Fields& out) {
        for_each_row<L>([&](const auto& row) {
            using R = std::remove_cvref_t<decltype(row)>;
            auto& member = R::in(object);
            using M = std::remove_cvref_t<decltype(member)>;
            const std::size_t at = place.start + row.offset;
            if (at + row.bytes > body_ || std::ranges::count(place.without, std::string_view(row.name)) != 0) {
                return;
            }
            const std::string name = place.prefix + row.name, meaning = place.meaning + row.meaning;
            if constexpr (R::kKind == Kind::kPart) {
                read_rows<M>({at, name, meaning, {}}, member, out);
            } else if constexpr (R::kKind == Kind::kList) {
                out.push_back({name, meaning, elements(at, member), {}, at, {}});
            } else {
                decode_row(row, &message_[place.start], object);
                out.push_back({name, meaning, value_of(row, at, member), {}, at, {}});
                if constexpr (kIsCode<M>) {
                    out.back().text = text(member);
                } else if constexpr (kIsSize<M>) {
                    add_bytes(out, member);
                }
            }
        });
    }

    template <class R, class M>
    Value value_of(const R& row, std::size_t at, const M& member) {
        if constexpr (R::kKind == Kind::kFlag) {
            tell(at, 1, R::kMask);
            return (member & R::kMask) != 0;
        } else if constexpr (R::kKind == Kind::kCount) {
            tell(at, row.bytes, 0xff);
            return load_be(&message_[at], row.bytes);  // the list itself has no more elements than it can hold
        } else if constexpr (R::kKind == Kind::kBits) {
            tell(at, 1, ((1U << row.bits) - 1) << (8 - row.bit - row.bits));
            return plain(member);
        } else {
            tell(at, row.bytes, 0xff);
            return plain(member);
        }
    }

    template <class T>
    static Value plain(const T& member) {
        if constexpr (std::is_same_v<T, bool>) {
            return member;
        } else if constexpr (kIsCode<T> || kIsSize<T>) {
            return static_cast<std::uint64_t>(member);
        } else if constexpr (std::is_enum_v<T>) {
            return text(member);
        } else if constexpr (std::is_integral_v<T>) {
            return static_cast<std::uint64_t>(member);
        } else if constexpr (requires { member.text(); }) {
            return member.text();
        } else {
            return hex(member);
        }
    }

    template <class M>
    Values elements(std::size_t at, M& list) {
        using E = typename M::value_type;
        constexpr std::size_t kEach = element_size<E>();
        list.resize(std::min(list.size(), at < body_ ? (body_ - at) / kEach : 0));
        Values values;
        for (E& item : list) {
            if constexpr (Structure<E>) {
                smc::Fields group;
                read<E>(at, item, group);
                values.push_back(std::move(group));
            } else {
                decode_value(&message_[at], kEach, item);
                tell(at, kEach, 0xff);
                values.push_back(plain(item));
            }
            at += kEach;
        }
        return values;
    }

    // "rmbe_size", "mtu" -> "rmbe_bytes", "mtu_bytes".
    template <class M>
    static void add_bytes(smc::Fields& out, const M& size) {
        if constexpr (std::is_same_v<M, clc::Mtu>) {
            if (!is_valid(size)) {
                return;
            }
        }
        std::string name = out.back().name;
        if (name.ends_with("_size")) {
            name.resize(name.size() - std::string_view("_size").size());
        }
        out.push_back({name + "_bytes", out.back().meaning + ", in bytes", std::uint64_t{bytes_of(size)}});
    }

    Bytes message_;
    std::size_t body_;
    std::vector<std::uint8_t> told_;  // for each byte of the message, the bits that a row has told
};

// The fault, if there is one.
template <class T>
std::optional<Fault> fault_of(const Decoded<T>& decoded) {
    const auto* fault = std::get_if<Fault>(&decoded);
    return fault != nullptr ? std::optional(*fault) : std::nullopt;
}
// Adds what no row has told, and marks the field that is wrong.
void finish(Description& out, const RowReader& reader, const std::optional<Fault>& fault);

}  // namespace smc::wire
