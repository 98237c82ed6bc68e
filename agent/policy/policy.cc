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
    }
    out.v4 = remote.bits >= 96 && Endpoint{remote.prefix, 0}.is_v4() ? 1 : 0;
    return out;
}

}  // namespace

std::uint32_t bypass_of(const std::string& word) {
    return word == "force" ? SMC_LOCAL_FORCE : word == "auto" ? SMC_LOCAL_BYPASS : 0;
}

Policy::Policy(const Config& config) : rules_(config.rules), default_allow_(config.default_allow) {
    for (std::size_t group = 0; group < rules_.size(); group++) {
        for (const auto& remote : rules_[group].remotes) {
            for (const auto& ports : rules_[group].ports) {
                table_.push_back(flatten(rules_[group], group, *parse_cidr(remote), *parse_ports(ports), config));
            }
        }
    }
}

std::uint64_t Policy::rules_for_cgroup(const std::string& path) const {
    std::uint64_t matched = 0;
    for (std::size_t group = 0; group < rules_.size(); group++) {
        const auto& globs = rules_[group].cgroups;
        if (std::any_of(globs.begin(), globs.end(),
                        [&](const std::string& glob) { return ::fnmatch(glob.c_str(), path.c_str(), 0) == 0; })) {
            matched |= 1ULL << group;
        }
    }
    return matched;
}

std::string Policy::rule_name(int row) const {
    return row < 0 ? "default" : rules_[table_[static_cast<std::size_t>(row)].group].name;
}

}  // namespace smc
