// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/config/meaning.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "agent/config/lists.h"
#include "os/endpoint.h"

namespace smc {

using nlohmann::json;

json value_at(const json& document, const char* section, const char* name, json otherwise) {
    return document.value(section, json::object()).value(name, std::move(otherwise));
}

namespace {

// Finds remotes and ports that fit the schema's patterns and are invalid.
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

// Finds two fabrics with the same CHID, or with the same directory or device.
std::optional<ConfigProblem> check_fabrics(const json& document) {
    const json others = value_at(document, "ism", "others", json::array());
    const IsmFabric usual;
    const auto chid = [](std::string text) {
        std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
        return text;
    };
    const auto place = [&](const json& fabric) {
        const bool local = fabric.value("provider", usual.provider) == "local";
        return local ? "directory " + fabric.value("directory", usual.directory)
                     : "device " + fabric.value("device", usual.device);
    };
    const json first = document.value("ism", json::object());
    std::set<std::string> chids{chid(first.value("chid", usual.chid))}, places{place(first)};
    for (std::size_t i = 0; i < others.size(); i++) {
        const std::string pointer = "/ism/others/" + std::to_string(i);
        if (!chids.insert(chid(others[i]["chid"])).second) {
            return ConfigProblem{pointer + "/chid",
                                 "found " + others[i]["chid"].dump() + ", allowed: one that no other fabric has"};
        }
        if (const std::string where = place(others[i]); !places.insert(where).second) {
            return ConfigProblem{pointer, "found the " + where + " again, allowed: one that no other fabric has"};
        }
    }
    return std::nullopt;
}

// Finds invalid CIDRs, and IDs, devices and CIDRs that occur twice.
std::optional<ConfigProblem> check_pnets(const json& document) {
    const json pnets = value_at(document, "roce", "pnets", json::array());
    std::set<std::string> ids, devices;
    std::set<std::pair<std::array<std::uint8_t, 16>, unsigned>> networks;
    for (std::size_t i = 0; i < pnets.size(); i++) {
        const std::string pointer = "/roce/pnets/" + std::to_string(i);
        const auto problem = [&](const std::string& key, const json& found, const char* allowed) {
            return ConfigProblem{pointer + key, "found " + found.dump() + ", allowed: " + allowed};
        };
        if (!ids.insert(pnets[i]["id"]).second) {
            return problem("/id", pnets[i]["id"], "one that no other physical network has");
        }
        for (std::size_t n = 0; n < pnets[i]["devices"].size(); n++) {
            const json& device = pnets[i]["devices"][n];
            const std::string name = device, whole = name.substr(0, name.find('/'));
            const bool taken = std::ranges::any_of(devices, [&](const std::string& other) {
                return other == name || other == whole || (name == whole && other.starts_with(whole + "/"));
            });
            if (taken) {
                return problem("/devices/" + std::to_string(n), device, "one that no other physical network has");
            }
            devices.insert(name);
        }
        for (std::size_t n = 0; n < pnets[i]["networks"].size(); n++) {
            const auto cidr = parse_cidr(pnets[i]["networks"][n]);
            if (!cidr) {
                return problem("/networks/" + std::to_string(n), pnets[i]["networks"][n],
                               "an IPv4 or IPv6 address, or address/bits");
            }
            if (!networks.emplace(cidr->prefix, cidr->bits).second) {
                return problem("/networks/" + std::to_string(n), pnets[i]["networks"][n], "one that stands once");
            }
        }
    }
    return std::nullopt;
}

// stale_ms and standstill_ms are checked against events that come once a beat, so one late beat must not exceed them.
std::optional<ConfigProblem> check_times(const json& document) {
    const Times usual;
    const auto beat = value_at(document, "times", "beat_ms", usual.beat.count()).get<std::int64_t>();
    for (const auto& [key, otherwise] :
         {std::pair("stale_ms", usual.stale), std::pair("standstill_ms", usual.standstill)}) {
        const auto value = value_at(document, "times", key, otherwise.count()).get<std::int64_t>();
        if (value < 3 * beat) {
            return ConfigProblem{std::string("/times/") + key, "found " + std::to_string(value) +
                                                                   ", allowed: three times times.beat_ms (" +
                                                                   std::to_string(beat) + ") or more"};
        }
    }
    const auto look = value_at(document, "times", "look_ms", usual.look.count()).get<std::int64_t>();
    if (const auto probe = value_at(document, "times", "probe_ms", usual.probe.count()).get<std::int64_t>();
        probe < look) {
        return ConfigProblem{"/times/probe_ms", "found " + std::to_string(probe) + ", allowed: times.look_ms (" +
                                                    std::to_string(look) + ") or more"};
    }
    return std::nullopt;
}

}  // namespace

std::optional<ConfigProblem> check_meaning(const json& document) {
    const json rules = value_at(document, "policy", "rules", json::array());
    std::size_t flattened = 0;
    std::set<std::string> groups;  // different sets of cgroups and pods
    for (std::size_t i = 0; i < rules.size(); i++) {
        const std::string pointer = "/policy/rules/" + std::to_string(i);
        if (auto problem = check_rule(rules[i], pointer)) {
            return problem;
        }
        const Rule rule = rule_from(rules[i]);
        if (!rule.pods.empty() && value_at(document, "kubernetes", "api", "").get<std::string>().empty()) {
            return ConfigProblem{pointer + "/pods",
                                 "found pods, allowed: only with kubernetes.api, which tells of them"};
        }
        flattened += rule.remotes.size() * rule.ports.size();
        groups.insert(json(rule.cgroups).dump() + rules[i].value("pods", json()).dump());
    }
    if (flattened > SMC_MAX_RULES) {
        return ConfigProblem{"/policy/rules", "found " + std::to_string(flattened) +
                                                  " combinations of a remote and a port range, allowed: at most " +
                                                  std::to_string(SMC_MAX_RULES)};
    }
    if (groups.size() > SMC_MAX_RULE_GROUPS) {
        return ConfigProblem{"/policy/rules", "found " + std::to_string(groups.size()) +
                                                  " different sets of cgroups and pods, allowed: at most " +
                                                  std::to_string(SMC_MAX_RULE_GROUPS)};
    }
    if (auto problem = check_times(document)) {
        return problem;
    }
    const auto listen = value_at(document, "http", "listen", "").get<std::string>();
    if (!listen.empty() && !Endpoint::parse(listen)) {
        return ConfigProblem{"/http/listen", "found \"" + listen + "\", allowed: ADDR:PORT or [ADDR]:PORT"};
    }
    const json ueids = value_at(document, "smc", "ueids", json::array({"x"}));
    for (std::size_t i = 0; i < ueids.size(); i++) {
        if (ueids[i] != "x" && !Eid::parse(ueids[i].get<std::string>())) {
            return ConfigProblem{"/smc/ueids/" + std::to_string(i),
                                 "found " + ueids[i].dump() + ", allowed: no two dots in a row"};
        }
    }
    const std::string seid = value_at(document, "smc", "seid", "");
    if (!seid.empty() && !Eid::parse(seid)) {
        return ConfigProblem{"/smc/seid", "found \"" + seid + "\", allowed: no two dots in a row"};
    }
    if (auto problem = check_fabrics(document)) {
        return problem;
    }
    if (auto problem = check_pnets(document)) {
        return problem;
    }
    if (ueids.empty() && seid.empty()) {
        return ConfigProblem{"/smc/ueids", "found no EID, allowed: at least one UEID or a seid"};
    }
    return std::nullopt;
}

}  // namespace smc
