// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// tests/malformed/messages.txt: the field that is found wrong, and the verdict that the specification demands (H2).
#include <catch2/catch.hpp>
#include <fstream>

#include "smc/wire/describe.h"

namespace {

std::vector<std::string> columns(const std::string& line) {
    std::vector<std::string> out;
    for (std::size_t at = 0; at != std::string::npos;) {
        const std::size_t end = line.find(" | ", at);
        out.push_back(line.substr(at, end == std::string::npos ? end : end - at));
        at = end == std::string::npos ? end : end + 3;
    }
    return out;
}

int wrong_fields(const smc::Fields& fields);

int wrong_fields(const smc::Value& value) {
    if (const auto* group = std::get_if<smc::Fields>(&value)) {
        return wrong_fields(*group);
    }
    int count = 0;
    if (const auto* list = std::get_if<smc::Values>(&value)) {
        for (const smc::Value& item : *list) {
            count += wrong_fields(item);
        }
    }
    return count;
}

int wrong_fields(const smc::Fields& fields) {
    int count = 0;
    for (const smc::Field& field : fields) {
        count += (field.wrong.empty() ? 0 : 1) + wrong_fields(field.value);
    }
    return count;
}

}  // namespace

TEST_CASE("malformed__every_one_gets_the_verdict_of_the_rule") {
    std::ifstream file(SMC_MALFORMED);
    REQUIRE(file);
    int tried = 0;
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("#")) {
            continue;
        }
        const auto row = columns(line);
        REQUIRE(row.size() == 6);
        std::vector<std::uint8_t> bytes;
        for (std::size_t i = 0; i + 1 < row[5].size(); i += 2) {
            bytes.push_back(static_cast<std::uint8_t>(std::stoul(row[5].substr(i, 2), nullptr, 16)));
        }
        INFO(row[4] << " (" << row[3] << ")");
        const auto described = row[0] == "CLC"   ? smc::describe_clc(bytes)
                               : row[0] == "LLC" ? smc::describe_llc(bytes)
                                                 : smc::describe_cdc(bytes);
        REQUIRE(described.fault);
        CHECK(described.fault->field == row[1]);
        CHECK(smc::text(described.fault->verdict) == row[2]);
        CHECK(described.fault->offset <= bytes.size());
        CHECK(wrong_fields(described.fields) == 1);
        tried++;
    }
    CHECK(tried >= 50);
}
