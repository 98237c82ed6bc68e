// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The policy as a table that the BPF programs evaluate (bpf/smc_common.h). Nothing else evaluates it: `smcctl explain`
// asks the programs.
#pragma once

#include <string>
#include <vector>

#include "agent/config/config.h"
#include "agent/policy/pod.h"

namespace smc {

// enum smc_local, of one of the words that a configuration has for the bypass.
[[nodiscard]] std::uint32_t bypass_of(const std::string& word);

class Policy {
 public:
    // The configuration is valid: its remotes and ports parse, and they fit.
    explicit Policy(const Config& config);

    // Bit n: rule n's globs match this path below cgroup.root ("/apps/web", "/" for the root itself), or its selectors
    // the pod whose cgroup it is. nullptr: it is no pod's, or nobody has told of that yet.
    [[nodiscard]] std::uint64_t rules_for_cgroup(const std::string& path, const Pod* pod = nullptr) const;
    // Those of the bits that allow something.
    [[nodiscard]] std::uint64_t allowing() const;

    [[nodiscard]] const std::vector<smc_rule>& table() const { return table_; }
    // Of the rule that a row of the table comes from; "default" for -1.
    [[nodiscard]] std::string rule_name(int row) const;
    [[nodiscard]] bool default_allow() const { return default_allow_; }

 private:
    std::vector<Rule> rules_;
    std::vector<smc_rule> table_;
    bool default_allow_;
};

}  // namespace smc
