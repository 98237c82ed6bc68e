// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/policy/policy.h"

#include <algorithm>

#include <string_view>

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

// Only `*` is special. (fnmatch() also reads "[...]", which is usual in annotations, and "?".)
bool matches(std::string_view glob, std::string_view text) {
    constexpr auto kNone = std::string_view::npos;
    std::size_t g = 0, t = 0, star = kNone, begun = 0;  // the last star, and up to where its text goes
    while (t < text.size()) {
        if (g < glob.size() && glob[g] == '*') {
            star = g++;
            begun = t;
        } else if (g < glob.size() && glob[g] == text[t]) {
            g++;
            t++;
        } else if (star != kNone) {
            g = star + 1;
            t = ++begun;
        } else {
            return false;
        }
    }
    return glob.find_first_not_of('*', g) == kNone;
}

bool matches_any(const std::vector<std::string>& globs, const std::string& text) {
    return std::ranges::any_of(globs, [&](const std::string& glob) { return matches(glob, text); });
}

bool has_all(const Pod::Words& has, const Pod::Words& wanted) {
    return std::ranges::all_of(wanted, [&](const auto& word) {
        const auto it = has.find(word.first);
        return it != has.end() && matches(word.second, it->second);
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

Policy::Grants Policy::grants_of(const smc_rule& row) {
    const std::uint32_t bypass = (row.local & SMC_LOCAL_FORCE) != 0 ? SMC_LOCAL_BYPASS : 0;  // it is more than that
    return {row.local | bypass, row.smcd != 0, row.past_limits != 0};
}

Policy::Grants Policy::Grants::united(const Grants& other) const {
    return {local | other.local, smcd || other.smcd, past_limits || other.past_limits};
}

Policy::Policy(const Config& config) : default_allow_(config.default_allow) {
    Grants all;
    std::vector<std::pair<std::uint64_t, Grants>> rows;  // of rules that allow, with the bit of their group
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
                if (rule.allow) {
                    rows.emplace_back(1ULL << group, grants_of(table_.back()));
                    all = all.united(rows.back().second);
                }
                if (rule.allow && (table_.back().local & (SMC_LOCAL_BYPASS | SMC_LOCAL_FORCE)) == 0) {
                    without_bypass_ |= 1ULL << group;
                }
            }
        }
    }
    if (config.default_allow) {
        all = all.united({SMC_LOCAL_TUNE | bypass_of(config.bypass), config.smcd, config.past_limits});
    }
    limiting_ = denying_;
    for (const auto& [group, grants] : rows) {
        limiting_ |= grants == all ? 0 : group;
    }
}

std::set<std::string> Policy::pod_keys() const {
    std::set<std::string> keys;
    for (const Group& group : groups_) {
        for (const PodSelector& pods : group.pods) {
            for (const auto* words :
                 {&pods.labels, &pods.annotations, &pods.namespace_labels, &pods.namespace_annotations}) {
                for (const auto& [key, value] : *words) {
                    keys.insert(key);
                }
            }
        }
    }
    return keys;
}

bool Policy::may_yet_limit(const Pod* pod) const {
    if (pod != nullptr && pod->namespace_known) {
        return false;
    }
    const auto waits = [&](const PodSelector& one) {
        return pod == nullptr || !one.namespace_labels.empty() || !one.namespace_annotations.empty();
    };
    for (std::size_t group = 0; group < groups_.size(); group++) {
        if ((limiting_ & 1ULL << group) != 0 && std::ranges::any_of(groups_[group].pods, waits)) {
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
