// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/policy/policy.h"

#include <fnmatch.h>

#include <algorithm>

#include "os/endpoint.h"

namespace smc {

namespace {

smc_rule flatten(const Rule& rule, std::size_t group, const Cidr& remote, const PortRange& ports,
                 const Config& config) {
    smc_rule out{};
    std::copy(remote.prefix.begin(), remote.prefix.end(), out.prefix);
    for (unsigned i = 0; i < remote.bits; i++) {
        out.mask[i / 8] |= static_cast<__u8>(0x80 >> i % 8);
    }
    out.port_first = ports.first;
    out.port_last = ports.last;
    out.allow = rule.allow ? 1 : 0;
    out.directions = static_cast<__u8>(rule.directions);
    out.group = static_cast<__u8>(group);
    if (rule.allow) {
        const std::string& bypass = rule.bypass.empty() ? config.bypass : rule.bypass;
        out.local = static_cast<__u8>((rule.tune ? SMC_LOCAL_TUNE : 0) | bypass_of(bypass));
        out.smcd = rule.smcd.value_or(config.smcd) ? 1 : 0;
        out.past_limits = rule.past_limits.value_or(config.past_limits) ? 1 : 0;
        out.short_lived = rule.short_lived.value_or(config.short_lived) ? 1 : 0;
    }
    out.v4 = remote.bits >= 96 && Endpoint{remote.prefix, 0}.is_v4() ? 1 : 0;
    return out;
}

bool matches_any(const std::vector<std::string>& globs, const std::string& text) {
    return std::ranges::any_of(
        globs, [&](const std::string& glob) { return ::fnmatch(glob.c_str(), text.c_str(), FNM_NOESCAPE) == 0; });
}

bool has_all(const Pod::Words& has, const Pod::Words& wanted) {
    return std::ranges::all_of(wanted, [&](const auto& word) {
        const auto it = has.find(word.first);
        return it != has.end() && ::fnmatch(word.second.c_str(), it->second.c_str(), FNM_NOESCAPE) == 0;
    });
}

bool selects(const PodSelector& selector, const Pod& pod) {
    return matches_any(selector.namespaces, pod.kubernetes_namespace) && has_all(pod.labels, selector.labels) &&
           has_all(pod.annotations, selector.annotations) && has_all(pod.namespace_labels, selector.namespace_labels) &&
           has_all(pod.namespace_annotations, selector.namespace_annotations);
}

}  // namespace

std::uint32_t bypass_of(const std::string& word) {
    return word == "force" ? SMC_LOCAL_FORCE : word == "auto" ? SMC_LOCAL_BYPASS : 0;
}

Policy::Policy(const Config& config) : default_allow_(config.default_allow) {
    for (const Rule& rule : config.rules) {
        const Group whom{rule.cgroups, rule.pods};
        const auto it = std::ranges::find(groups_, whom);
        const auto group = static_cast<std::size_t>(it - groups_.begin());
        if (it == groups_.end()) {
            groups_.push_back(whom);
        }
        (rule.allow ? allowing_ : denying_) |= 1ULL << group;
        for (const auto& remote : rule.remotes) {
            for (const auto& ports : rule.ports) {
                table_.push_back(flatten(rule, group, *parse_cidr(remote), *parse_ports(ports), config));
                names_.push_back(rule.name);
                if (rule.allow && (table_.back().local & (SMC_LOCAL_BYPASS | SMC_LOCAL_FORCE)) == 0) {
                    without_bypass_ |= 1ULL << group;
                }
            }
        }
    }
}

bool Policy::may_yet_deny(const Pod* pod) const {
    if (pod != nullptr && pod->namespace_known) {
        return false;
    }
    const auto waits = [&](const PodSelector& one) {
        return pod == nullptr || !one.namespace_labels.empty() || !one.namespace_annotations.empty();
    };
    for (std::size_t group = 0; group < groups_.size(); group++) {
        if ((denying_ & 1ULL << group) != 0 && std::ranges::any_of(groups_[group].pods, waits)) {
            return true;
        }
    }
    return false;
}

std::uint64_t Policy::rules_for_cgroup(const std::string& path, const Pod* pod) const {
    std::uint64_t matched = 0;
    for (std::size_t group = 0; group < groups_.size(); group++) {
        if (matches_any(groups_[group].cgroups, path) ||
            (pod != nullptr &&
             std::ranges::any_of(groups_[group].pods, [&](const PodSelector& one) { return selects(one, *pod); }))) {
            matched |= 1ULL << group;
        }
    }
    return matched;
}

std::string Policy::rule_name(int row) const {
    return row < 0 ? "default" : names_[static_cast<std::size_t>(row)];
}

}  // namespace smc
