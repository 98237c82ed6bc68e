// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tables whose columns are as wide as their widest cell.
#pragma once

#include <algorithm>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

namespace smc::ctl {

using Row = std::vector<std::string>;

inline void print_table(std::ostream& out, const std::vector<Row>& rows) {
    std::vector<std::size_t> widths;
    for (const Row& row : rows) {
        widths.resize(std::max(widths.size(), row.size()));
        for (std::size_t i = 0; i < row.size(); i++) {
            widths[i] = std::max(widths[i], row[i].size());
        }
    }
    for (const Row& row : rows) {
        for (std::size_t i = 0; i + 1 < row.size(); i++) {
            out << std::left << std::setw(static_cast<int>(widths[i]) + 2) << row[i];
        }
        out << (row.empty() ? "" : row.back()) << "\n";
    }
}

// Replaces control characters, which must not reach a terminal, whatever their source.
inline std::string printable(std::string text) {
    std::ranges::replace_if(
        text, [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
    return text;
}

inline std::string word(const nlohmann::json& value) {
    return printable(value.is_string() ? value.get<std::string>() : value.dump());
}

}  // namespace smc::ctl
