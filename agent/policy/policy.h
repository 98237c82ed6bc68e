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

    // Bit n: the globs of group n match this path below cgroup.root ("/apps/web", "/" for the root itself), or its
    // selectors the pod whose cgroup it is. A group is all rules about the same applications. nullptr: it is no pod's,
    // or nobody has told of that yet.
    [[nodiscard]] std::uint64_t rules_for_cgroup(const std::string& path, const Pod* pod = nullptr) const;
    // The groups that have rules which allow something, or deny something.
    [[nodiscard]] std::uint64_t allowing() const { return allowing_; }
    [[nodiscard]] std::uint64_t denying() const { return denying_; }
    // Whether a pod that nobody has told of yet may be one that is denied.
    [[nodiscard]] bool denies_by_pod() const;

    [[nodiscard]] const std::vector<smc_rule>& table() const { return table_; }
    // Of the rule that a row of the table comes from; "default" for -1.
    [[nodiscard]] std::string rule_name(int row) const;
    [[nodiscard]] bool default_allow() const { return default_allow_; }

 private:
    // Whom rules are about.
    struct Group {
        std::vector<std::string> cgroups;
        std::vector<PodSelector> pods;

        bool operator==(const Group&) const = default;
    };
    std::vector<Group> groups_;
    std::vector<smc_rule> table_;
    std::vector<std::string> names_;  // of the rule, by the row
    std::uint64_t allowing_ = 0, denying_ = 0;
    bool default_allow_;
};

}  // namespace smc
