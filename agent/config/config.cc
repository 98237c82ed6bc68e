// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/config/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "agent/config/keys.h"
#include "agent/config/meaning.h"
#include "agent/config/reading.h"
#include "agent/config/schema.h"
#include "os/endpoint.h"

namespace smc {

using nlohmann::json;

namespace {

// Moves values of former keys to their successors, and removes keys that are gone. Returns a note about each. A key
// whose successor has a value already stays, so that the schema refuses it.
std::vector<std::string> take_former_keys(json& document) {
    std::vector<std::string> notes;
    for (const FormerKey& former : former_keys()) {
        if (!document.is_object() || !document.contains(former.section) || !document[former.section].is_object()) {
            continue;
        }
        json& section = document[former.section];
        const auto value = section.find(former.name);
        if (value == section.end() || (former.successor != nullptr && section.contains(former.successor))) {
            continue;
        }
        if (former.successor != nullptr) {
            section[former.successor] = *value;
        }
        section.erase(former.name);
        notes.push_back(
            fmt::format("{}.{} is a key of an earlier version: {}", former.section, former.name, former.now));
    }
    return notes;
}

}  // namespace

std::variant<Config, ConfigProblem> parse_config(const std::string& text) {
    if (text.size() > kMostConfigText) {
        return ConfigProblem{"", fmt::format("found more than the {} bytes that are allowed", kMostConfigText)};
    }
    json document;
    Reading reading;
    try {
        document = json::parse(text, [&reading](int, json::parse_event_t event, const json& value) {
            reading.see(event, value);
            return true;
        });
    } catch (const json::exception& error) {  // also a number that no double can hold
        return ConfigProblem{"", std::string("not JSON: ") + error.what()};
    }
    if (const auto& problem = reading.problem()) {
        return *problem;
    }
    std::vector<std::string> notes = take_former_keys(document);
    if (auto problem = check_schema(document)) {
        return *problem;
    }
    if (auto problem = check_meaning(document)) {
        return *problem;
    }
    Config config;
    config.notes = std::move(notes);
    for (const ConfigKey& key : config_keys()) {
        if (document.contains(key.section) && document[key.section].contains(key.name)) {
            key.set(config, document[key.section][key.name]);
        }
    }
    // The default of local.smcd is on with ivshmem: its machines share no kernel, so no other path is faster.
    const auto fabrics = config.fabrics();
    if (value_at(document, "local", "smcd", json()).is_null()) {
        config.smcd = std::ranges::count(fabrics, "ivshmem", &IsmFabric::provider) > 0;
    }
    return config;
}

std::vector<IsmFabric> Config::fabrics() const {
    std::vector<IsmFabric> all{ism};
    all.insert(all.end(), other_fabrics.begin(), other_fabrics.end());
    return all;
}

std::string print_config(const Config& config, Keys which, int indent) {
    nlohmann::ordered_json document;
    for (const ConfigKey& key : config_keys()) {
        if (key.first || which == Keys::kAll) {
            document[key.section][key.name] = key.get(config);
        }
    }
    return document.dump(indent);
}

std::optional<Cidr> parse_cidr(const std::string& text) {
    const auto slash = text.find('/');
    const auto address = Endpoint::parse_ip(text.substr(0, slash));
    if (!address) {
        return std::nullopt;
    }
    const unsigned family_bits = address->is_v4() ? 32 : 128;
    unsigned bits = family_bits;
    if (slash != std::string::npos) {
        const char* end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data() + slash + 1, end, bits);
        if (error != std::errc{} || stop != end || bits > family_bits) {
            return std::nullopt;
        }
    }
    Cidr cidr{address->ip, static_cast<std::uint8_t>(bits + 128 - family_bits)};
    for (unsigned i = cidr.bits; i < 128; i++) {
        cidr.prefix[i / 8] &= static_cast<std::uint8_t>(~(0x80 >> i % 8));
    }
    return cidr;
}

// As in rules, ::/0 does not match IPv4 addresses.
bool Cidr::contains(const std::array<std::uint8_t, 16>& address) const {
    const std::array<std::uint8_t, 12> mapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (bits < 96 && std::equal(mapped.begin(), mapped.end(), address.begin())) {
        return false;
    }
    unsigned i = 0;
    while (i < bits && (prefix[i / 8] & (0x80 >> i % 8)) == (address[i / 8] & (0x80 >> i % 8))) {
        i++;
    }
    return i >= bits;
}

std::optional<PortRange> parse_ports(const std::string& text) {
    const auto dash = text.find('-');
    const auto number = [](const std::string& digits, std::uint16_t& to) {
        const char* end = digits.data() + digits.size();
        const auto [stop, error] = std::from_chars(digits.data(), end, to);
        return error == std::errc{} && stop == end;
    };
    PortRange range;
    if (!number(text.substr(0, dash), range.first)) {
        return std::nullopt;
    }
    range.last = range.first;
    if (dash != std::string::npos && !number(text.substr(dash + 1), range.last)) {
        return std::nullopt;
    }
    return range.first <= range.last ? std::optional(range) : std::nullopt;
}

}  // namespace smc
