// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/config/config.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "agent/config/schema.h"
#include "os/endpoint.h"

namespace smc {

namespace {

using nlohmann::json;

smc_direction parse_direction(const std::string& text) {
    return text == "outbound" ? SMC_OUTBOUND : text == "inbound" ? SMC_INBOUND : SMC_BOTH;
}

const char* print_direction(smc_direction direction) {
    return direction == SMC_OUTBOUND ? "outbound" : direction == SMC_INBOUND ? "inbound" : "both";
}

template <class T>
void take(const json& section, const char* key, T& to) {
    if (const auto it = section.find(key); it != section.end()) {
        it->get_to(to);
    }
}

template <class Duration>
void take_duration(const json& section, const char* key, Duration& to) {
    if (const auto it = section.find(key); it != section.end()) {
        to = Duration(it->get<typename Duration::rep>());
    }
}

std::string without_slashes(std::string path) {
    while (path.size() > 1 && path.back() == '/') {
        path.pop_back();
    }
    return path;
}

json section(const json& document, const char* key) {
    return document.value(key, json::object());
}

Rule parse_rule(const json& from) {
    Rule rule;
    from.at("name").get_to(rule.name);
    rule.allow = from.at("action") == "allow";
    rule.directions = parse_direction(from.value("direction", "both"));
    take(from, "cgroups", rule.cgroups);
    take(from, "remotes", rule.remotes);
    take(from, "ports", rule.ports);
    return rule;
}

// What a pattern cannot say.
std::optional<ConfigProblem> check_rule(const json& rule, const std::string& pointer) {
    const auto problem = [&](const char* key, std::size_t i, const char* allowed) {
        const std::string at = pointer + "/" + key + "/" + std::to_string(i);
        return ConfigProblem{at, "found " + rule[key][i].dump() + ", allowed: " + allowed};
    };
    for (std::size_t i = 0; i < rule.value("remotes", json::array()).size(); i++) {
        if (!parse_cidr(rule["remotes"][i].get<std::string>())) {
            return problem("remotes", i, "an IPv4 or IPv6 address, or address/bits");
        }
    }
    for (std::size_t i = 0; i < rule.value("ports", json::array()).size(); i++) {
        if (!parse_ports(rule["ports"][i].get<std::string>())) {
            return problem("ports", i, "a port from 0 to 65535, or first-last");
        }
    }
    return std::nullopt;
}

std::optional<ConfigProblem> check_meaning(const json& document) {
    const json rules = section(document, "policy").value("rules", json::array());
    std::size_t flattened = 0;
    for (std::size_t i = 0; i < rules.size(); i++) {
        const std::string pointer = "/policy/rules/" + std::to_string(i);
        if (auto problem = check_rule(rules[i], pointer)) {
            return problem;
        }
        const Rule rule = parse_rule(rules[i]);
        flattened += rule.remotes.size() * rule.ports.size();
    }
    if (flattened > SMC_MAX_RULES) {
        return ConfigProblem{"/policy/rules", "found " + std::to_string(flattened) +
                                                  " pairs of a remote and a port range, allowed: at most " +
                                                  std::to_string(SMC_MAX_RULES)};
    }
    const json ueids = section(document, "smc").value("ueids", json::array({"x"}));
    for (std::size_t i = 0; i < ueids.size(); i++) {
        if (ueids[i] != "x" && !Eid::parse(ueids[i].get<std::string>())) {
            return ConfigProblem{"/smc/ueids/" + std::to_string(i),
                                 "found " + ueids[i].dump() + ", allowed: no two dots in a row"};
        }
    }
    const std::string seid = section(document, "smc").value("seid", "");
    if (!seid.empty() && !Eid::parse(seid)) {
        return ConfigProblem{"/smc/seid", "found \"" + seid + "\", allowed: no two dots in a row"};
    }
    if (ueids.empty() && seid.empty()) {
        return ConfigProblem{"/smc/ueids", "found no EID, allowed: at least one UEID or a seid"};
    }
    return std::nullopt;
}

Config build(const json& d) {
    Config c;
    take(section(d, "node"), "host_name", c.host_name);
    take(section(d, "cgroup"), "root", c.cgroup_root);
    c.cgroup_root = without_slashes(c.cgroup_root);
    take(section(d, "bpf"), "pin_path", c.pin_path);
    c.pin_path = without_slashes(c.pin_path);
    take(section(d, "bpf"), "tc", c.tc);
    take(section(d, "control"), "socket", c.control_socket);
    const json policy = section(d, "policy");
    c.default_allow = policy.value("default", "deny") == "allow";
    if (policy.contains("rules")) {
        c.rules.clear();
        std::transform(policy["rules"].begin(), policy["rules"].end(), std::back_inserter(c.rules), parse_rule);
    }
    const json smc = section(d, "smc");
    take(smc, "ueids", c.ueids);
    take(smc, "seid", c.seid);
    take_duration(smc, "step_timeout_ms", c.step_timeout);
    take_duration(smc, "close_timeout_ms", c.close_timeout);
    take_duration(smc, "keepalive_s", c.keepalive);
    take(section(d, "ism"), "directory", c.ism_directory);
    take(section(d, "ism"), "chid", c.chid);
    take(section(d, "ism"), "dmb_kib", c.dmb_kib);
    const json roce = section(d, "roce");
    take(roce, "enabled", c.roce.enabled);
    take(roce, "devices", c.roce.devices);
    take(roce, "versions", c.roce.versions);
    take(roce, "rmbe_kib", c.roce.rmbe_kib);
    take(roce, "rmbes_per_rmb", c.roce.rmbes_per_rmb);
    take(roce, "max_connections", c.roce.max_connections);
    take(roce, "memory_mib", c.roce.memory_mib);
    take_duration(roce, "group_idle_s", c.roce.group_idle);
    take_duration(roce, "llc_timeout_ms", c.roce.llc_timeout);
    take_duration(roce, "test_link_s", c.roce.test_link);
    take(roce, "sends", c.roce.sends);
    take(roce, "receives", c.roce.receives);
    take(roce, "timeout", c.roce.timeout);
    take(roce, "retries", c.roce.retries);
    take_duration(roce, "busy_poll_us", c.roce.busy_poll);
    take(roce, "eye_catchers", c.roce.eye_catchers);
    take(section(d, "fallback"), "cache_entries", c.cache_entries);
    take_duration(section(d, "fallback"), "cache_s", c.cache_time);
    take(section(d, "limits"), "connections", c.max_connections);
    take(section(d, "log"), "level", c.log_level);
    return c;
}

}  // namespace

std::variant<Config, ConfigProblem> parse_config(const std::string& text) {
    json document;
    try {
        document = json::parse(text);
    } catch (const json::parse_error& error) {
        return ConfigProblem{"", std::string("not JSON: ") + error.what()};
    }
    if (auto problem = check_schema(document)) {
        return *problem;
    }
    if (auto problem = check_meaning(document)) {
        return *problem;
    }
    return build(document);
}

std::string print_config(const Config& c, int indent) {
    nlohmann::ordered_json rules = nlohmann::ordered_json::array();
    for (const Rule& rule : c.rules) {
        rules.push_back({{"name", rule.name},
                         {"action", rule.allow ? "allow" : "deny"},
                         {"direction", print_direction(rule.directions)},
                         {"cgroups", rule.cgroups},
                         {"remotes", rule.remotes},
                         {"ports", rule.ports}});
    }
    const nlohmann::ordered_json document = {
        {"node", {{"host_name", c.host_name}}},
        {"cgroup", {{"root", c.cgroup_root}}},
        {"bpf", {{"pin_path", c.pin_path}, {"tc", c.tc}}},
        {"control", {{"socket", c.control_socket}}},
        {"policy", {{"default", c.default_allow ? "allow" : "deny"}, {"rules", rules}}},
        {"smc",
         {{"ueids", c.ueids},
          {"seid", c.seid},
          {"step_timeout_ms", c.step_timeout.count()},
          {"close_timeout_ms", c.close_timeout.count()},
          {"keepalive_s", c.keepalive.count()}}},
        {"ism", {{"directory", c.ism_directory}, {"chid", c.chid}, {"dmb_kib", c.dmb_kib}}},
        {"roce",
         {{"enabled", c.roce.enabled},
          {"devices", c.roce.devices},
          {"versions", c.roce.versions},
          {"rmbe_kib", c.roce.rmbe_kib},
          {"rmbes_per_rmb", c.roce.rmbes_per_rmb},
          {"max_connections", c.roce.max_connections},
          {"memory_mib", c.roce.memory_mib},
          {"group_idle_s", c.roce.group_idle.count()},
          {"llc_timeout_ms", c.roce.llc_timeout.count()},
          {"test_link_s", c.roce.test_link.count()},
          {"sends", c.roce.sends},
          {"receives", c.roce.receives},
          {"timeout", c.roce.timeout},
          {"retries", c.roce.retries},
          {"busy_poll_us", c.roce.busy_poll.count()},
          {"eye_catchers", c.roce.eye_catchers}}},
        {"fallback", {{"cache_entries", c.cache_entries}, {"cache_s", c.cache_time.count()}}},
        {"limits", {{"connections", c.max_connections}}},
        {"log", {{"level", c.log_level}}},
    };
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
