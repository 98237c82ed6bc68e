// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which connections are eligible. The BPF programs evaluate the same table (bpf/smc_common.h); this class
// makes it, and answers the same question for `smcctl explain`.
#pragma once

#include <string>
#include <vector>

#include "agent/config/config.h"
#include "os/endpoint.h"

namespace smc {

class Policy {
 public:
    // The configuration is valid: its remotes and ports parse, and they fit.
    explicit Policy(const Config& config);

    // Bit n: rule n's globs match this path below cgroup.root ("/apps/web", "/" for the root itself).
    [[nodiscard]] std::uint64_t rules_for_cgroup(const std::string& path) const;

    struct Decision {
        bool allow = false;
        std::string rule;  // its name, or "default"
    };
    // `port` is the server's: the remote's own outbound, the local one inbound.
    [[nodiscard]] Decision decide(std::uint64_t cgroup_rules, const Endpoint& remote, std::uint16_t port,
                                  smc_direction direction) const;

    [[nodiscard]] const std::vector<smc_rule>& table() const { return table_; }
    [[nodiscard]] bool default_allow() const { return default_allow_; }

 private:
    std::vector<Rule> rules_;
    std::vector<smc_rule> table_;
    bool default_allow_;
};

}  // namespace smc
