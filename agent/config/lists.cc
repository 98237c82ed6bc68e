// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/config/lists.h"

#include <algorithm>

#include "agent/config/values.h"

namespace smc {

using nlohmann::json;
using nlohmann::ordered_json;
using namespace schema;

namespace {

// --- rules

ordered_json pods_schema() {
    const ordered_json words = {{"type", "object"}, {"additionalProperties", {{"type", "string"}, {"maxLength", 256}}}};
    return {{"type", "object"},
            {"additionalProperties", false},
            {"minProperties", 1},
            {"properties",
             {{"namespaces", list({{"type", "string"}, {"minLength", 1}, {"maxLength", 63}}, 1, 64)},
              {"labels", words},
              {"annotations", words},
              {"namespace_labels", words},
              {"namespace_annotations", words}}}};
}

ordered_json pods_of(const Rule& rule) {
    ordered_json out = ordered_json::array();
    for (const PodSelector& pods : rule.pods) {
        out.push_back({{"namespaces", pods.namespaces},
                       {"labels", pods.labels},
                       {"annotations", pods.annotations},
                       {"namespace_labels", pods.namespace_labels},
                       {"namespace_annotations", pods.namespace_annotations}});
    }
    return out;
}

ordered_json rules_schema() {
    const auto described = [](ordered_json schema, const char* meaning) {
        schema["description"] = meaning;
        return schema;
    };
    return list(
        {{"type", "object"},
         {"additionalProperties", false},
         {"required", {"name", "action"}},
         {"properties",
          {{"name", {{"type", "string"}, {"minLength", 1}, {"maxLength", 64}}},
           {"action", one_of({"allow", "deny"})},
           {"direction", described(one_of({"outbound", "inbound", "both"}),
                                   "outbound: connect(); inbound: connections to a listener.")},
           {"cgroups", described(list(string("^[/*]", 256), 1, 64),
                                 "Globs over the path below cgroup.root, as in /apps/web*; * also matches slashes.")},
           {"pods", described(list(pods_schema(), 1, 64),
                              "Pods by namespace, labels and annotations; with cgroups both, else these.")},
           {"remotes", described(list(string("^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$"), 1, 64),
                                 "IPv4 or IPv6 addresses or CIDRs of the other end.")},
           {"ports",
            described(list(string("^[0-9]{1,5}(-[0-9]{1,5})?$"), 1, 64), "Ports of the server's end, or ranges.")},
           {"tune", described(boolean(), "Whether connections within this node are tuned (local.tune).")},
           {"bypass",
            described(one_of({"auto", "off", "force"}), "Whether they may be bypassed; unset: as local.bypass.")},
           {"smcd", described(boolean(), "Whether SMC-D is used within this kernel; unset: as local.smcd.")},
           {"past_limits",
            described(boolean(), "SMC also where a device limits or encrypts packets; unset: as policy.past_limits.")},
           {"short_lived",
            described(boolean(), "SMC also where connections end early; unset: as policy.short_lived.")}}}},
        0, kMostRules);
}

ordered_json rules_of(const Config& c) {
    ordered_json out = ordered_json::array();
    for (const Rule& rule : c.rules) {
        ordered_json row = {{"name", rule.name},
                            {"action", rule.allow ? "allow" : "deny"},
                            {"direction", rule.directions == SMC_OUTBOUND  ? "outbound"
                                          : rule.directions == SMC_INBOUND ? "inbound"
                                                                           : "both"},
                            {"remotes", rule.remotes},
                            {"ports", rule.ports},
                            {"tune", rule.tune}};
        if (!rule.cgroups.empty()) {
            row["cgroups"] = rule.cgroups;
        }
        if (!rule.pods.empty()) {
            row["pods"] = pods_of(rule);
        }
        if (!rule.bypass.empty()) {
            row["bypass"] = rule.bypass;
        }
        if (rule.smcd) {
            row["smcd"] = *rule.smcd;
        }
        if (rule.past_limits) {
            row["past_limits"] = *rule.past_limits;
        }
        if (rule.short_lived) {
            row["short_lived"] = *rule.short_lived;
        }
        out.push_back(row);
    }
    return out;
}

// --- fabrics

ordered_json fabrics_schema() {
    return list({{"type", "object"},
                 {"additionalProperties", false},
                 {"required", {"provider", "chid"}},
                 {"properties",
                  {{"provider", ism_provider()},
                   {"device", ism_device()},
                   {"directory", ism_directory()},
                   {"chid", ism_chid()}}}},
                0, kMostOtherFabrics);
}

IsmFabric fabric_from(const json& from) {
    const IsmFabric usual;
    return {from.at("provider"), from.value("device", usual.device), from.value("directory", usual.directory),
            from.at("chid")};
}

ordered_json fabrics_of(const Config& c) {
    ordered_json out = ordered_json::array();
    for (const IsmFabric& fabric : c.other_fabrics) {
        out.push_back({{"provider", fabric.provider},
                       {"device", fabric.device},
                       {"directory", fabric.directory},
                       {"chid", fabric.chid}});
    }
    return out;
}

// --- physical networks

ordered_json pnets_schema() {
    return list({{"type", "object"},
                 {"additionalProperties", false},
                 {"required", {"id", "devices", "networks"}},
                 {"properties",
                  {{"id", string("^[A-Z0-9]{1,16}$")},
                   {"devices", list(string("^[^/]{1,63}(/[1-9][0-9]{0,2})?$"), 1, 64)},
                   {"networks", list(string("^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$"), 1, 64)}}}},
                0, 16);
}

Pnet pnet_from(const json& from) {
    return {from.at("id"), from.at("devices"), from.at("networks")};
}

ordered_json pnets_of(const Config& c) {
    ordered_json out = ordered_json::array();
    for (const Pnet& pnet : c.roce.pnets) {
        out.push_back({{"id", pnet.id}, {"devices", pnet.devices}, {"networks", pnet.networks}});
    }
    return out;
}

// `member`: returns a reference to the list; `from`: makes one element from JSON; `of`: makes the JSON list.
template <class Member, class From>
ConfigKey list_key(ConfigKey key, Member member, From from, ordered_json (*of)(const Config&)) {
    key.set = [member, from](Config& c, const json& value) {
        member(c).clear();
        std::ranges::transform(value, std::back_inserter(member(c)), from);
    };
    key.get = of;
    return key;
}

}  // namespace

ConfigKey rules_key() {
    return list_key(
        {"policy", "rules", rules_schema(), "Rules, tried in order; the first match decides."},
        [](Config& c) -> auto& { return c.rules; }, rule_from, rules_of);
}

ConfigKey other_fabrics_key() {
    return list_key(
        {"ism", "others", fabrics_schema(),
         "More fabrics, tried after that of ism.provider in this order; each has its own chid."},
        [](Config& c) -> auto& { return c.other_fabrics; }, fabric_from, fabrics_of);
}

ConfigKey pnets_key() {
    return list_key(
        {"roce", "pnets", pnets_schema(),
         "Physical networks: a PNET ID, RoCE devices on it, and whose local addresses they serve."},
        [](Config& c) -> auto& { return c.roce.pnets; }, pnet_from, pnets_of);
}

Rule rule_from(const json& from) {
    Rule rule;
    from.at("name").get_to(rule.name);
    rule.allow = from.at("action") == "allow";
    const std::string direction = from.value("direction", "both");
    rule.directions = direction == "outbound" ? SMC_OUTBOUND : direction == "inbound" ? SMC_INBOUND : SMC_BOTH;
    for (const json& pods : from.value("pods", json::array())) {
        const PodSelector all;
        rule.pods.push_back({pods.value("namespaces", all.namespaces), pods.value("labels", all.labels),
                             pods.value("annotations", all.annotations),
                             pods.value("namespace_labels", all.namespace_labels),
                             pods.value("namespace_annotations", all.namespace_annotations)});
        rule.cgroups.clear();  // no default; the rule may name cgroups
    }
    rule.cgroups = from.value("cgroups", rule.cgroups);
    rule.remotes = from.value("remotes", rule.remotes);
    rule.ports = from.value("ports", rule.ports);
    rule.tune = from.value("tune", rule.tune);
    rule.bypass = from.value("bypass", rule.bypass);
    if (from.contains("smcd")) {
        rule.smcd = from.at("smcd").get<bool>();
    }
    if (from.contains("past_limits")) {
        rule.past_limits = from.at("past_limits").get<bool>();
    }
    if (from.contains("short_lived")) {
        rule.short_lived = from.at("short_lived").get<bool>();
    }
    return rule;
}

}  // namespace smc
