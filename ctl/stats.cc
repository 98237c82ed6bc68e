// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ctl/stats.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <system_error>

namespace smc::ctl {

using nlohmann::json;

namespace {

// The file of the last reset. It is below the user's own directory, where no other user can put a symbolic link.
std::filesystem::path memory() {
    const char* state = std::getenv("XDG_STATE_HOME");  // NOLINT(concurrency-mt-unsafe): nobody changes it
    const char* home = std::getenv("HOME");             // NOLINT(concurrency-mt-unsafe): likewise
    const std::filesystem::path base = state != nullptr && *state != '\0' ? std::filesystem::path(state)
                                       : home != nullptr                  ? std::filesystem::path(home) / ".local/state"
                                                                          : std::filesystem::path();
    return base.empty() ? base : base / "smcctl/stats.json";
}

// Identifies the agent that counted: the sums of another agent begin at zero.
std::string whose(const json& status) {
    return status.at("agent").at("pid").dump() + " " + status.at("ism").at("gid").get<std::string>();
}

json minus(json sums, const json& before) {
    for (auto& [key, value] : sums.items()) {
        if (value.is_object()) {
            value = minus(value, before.value(key, json::object()));
        } else if (value.is_number_unsigned()) {
            value = value.get<std::uint64_t>() - before.value(key, std::uint64_t{0});
        }
    }
    return sums;
}

}  // namespace

json sums_of(const json& status) {
    json sums = {{"smcd", {{"connections", 0U}, {"sent_bytes", 0U}, {"received_bytes", 0U}}},
                 {"smcr", {{"connections", 0U}, {"sent_bytes", 0U}, {"received_bytes", 0U}}},
                 {"bypass", {{"connections", 0U}, {"sent_bytes", 0U}, {"received_bytes", 0U}}},
                 {"fallbacks", json::object()},
                 {"refused", json::object()},
                 {"broken", json::object()}};
    for (const auto& total : status.at("totals")) {
        const auto path = total.at("path").get<std::string>();
        const auto count = total.at("count").get<std::uint64_t>();
        const auto reason = total.at("reason").at("name").get<std::string>();
        if (path == "smcd" || path == "smcr" || path == "bypass") {
            sums[path]["connections"] = sums[path].at("connections").get<std::uint64_t>() + count;
        } else {
            sums[path == "fallback" ? "fallbacks" : path][reason] = count;
        }
    }
    for (const auto& traffic : status.at("traffic")) {
        const auto path = traffic.at("path").get<std::string>();
        if (path == "smcd" || path == "smcr" || path == "bypass") {
            sums[path]["sent_bytes"] = traffic.at("sent");
            sums[path]["received_bytes"] = traffic.at("received");
        }
    }
    return sums;
}

json since_reset(const json& status) {
    json sums = sums_of(status);
    std::ifstream file(memory());
    const json remembered = file ? json::parse(file, nullptr, false) : json();
    if (remembered.is_object() && remembered.value("agent", "") == whose(status)) {
        sums = minus(std::move(sums), remembered.value("sums", json::object()));
    }
    return sums;
}

bool reset_stats(const json& status) {
    const auto path = memory();
    if (path.empty()) {
        std::cerr << "Error: the reset cannot be saved: neither XDG_STATE_HOME nor HOME is set\n";
        return false;
    }
    std::error_code failure;
    std::filesystem::create_directories(path.parent_path(), failure);
    std::ofstream file(path);
    file << json{{"agent", whose(status)}, {"sums", sums_of(status)}}.dump() << "\n" << std::flush;
    if (!file) {
        std::cerr << "Error: writing " << path.string() << ": " << std::generic_category().message(errno) << "\n";
    }
    return static_cast<bool>(file);
}

}  // namespace smc::ctl
