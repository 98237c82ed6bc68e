// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// JSON schemas of the values of the configuration.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

namespace smc::schema {

using nlohmann::ordered_json;

inline ordered_json boolean() {
    return {{"type", "boolean"}};
}
inline ordered_json integer(std::int64_t from, std::int64_t to) {
    return {{"type", "integer"}, {"minimum", from}, {"maximum", to}};
}
inline ordered_json string(const char* pattern, int longest = 0) {
    ordered_json out = {{"type", "string"}, {"pattern", pattern}};
    if (longest > 0) {
        out["maxLength"] = longest;
    }
    return out;
}
inline ordered_json one_of(ordered_json values) {
    return {{"enum", std::move(values)}};
}
inline ordered_json either(const ordered_json& one, const ordered_json& other) {
    return {{"anyOf", ordered_json::array({one, other})}};
}
inline ordered_json list(ordered_json items, int fewest, int most) {
    return {{"type", "array"}, {"minItems", fewest}, {"maxItems", most}, {"items", std::move(items)}};
}
inline ordered_json power_of_two_kib() {
    return one_of({16, 32, 64, 128, 256, 512, 1024, 2048, 4096});
}

inline constexpr const char* kEid = "[A-Z0-9][A-Z0-9.-]{0,31}";
inline constexpr const char* kAbsolutePath = "^/.+";

// Values of a fabric.
inline ordered_json ism_provider() {
    return one_of({"local", "ivshmem"});
}
inline ordered_json ism_device() {
    return string("^(/.+)?$", 200);
}
inline ordered_json ism_directory() {
    return string(kAbsolutePath, 60);
}
inline ordered_json ism_chid() {
    return string("^0x[fF][fF]([0-9a-eA-E][0-9a-fA-F]|[fF][0-9a-eA-E])$");
}

}  // namespace smc::schema
