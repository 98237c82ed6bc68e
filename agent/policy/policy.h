// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The policy as a table that the BPF programs evaluate (bpf/smc_common.h). Nothing else evaluates it: `smcctl explain`
// asks the programs.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "agent/config/config.h"
#include "agent/policy/pod.h"

namespace smc {

// The flag of enum smc_local for a value of local.bypass; 0 for "off".
[[nodiscard]] std::uint32_t bypass_of(const std::string& word);

class Policy {
 public:
    // The configuration must be valid: its remotes and ports parse, and its rules fit into the table.
    explicit Policy(const Config& config);

    // Bit n: the globs of group n match this path below cgroup.root ("/apps/web", "/" for the root itself), or its
    // selectors match the pod that the cgroup belongs to. A group is all rules about the same applications. nullptr:
    // the cgroup belongs to no pod, or to one that the API server has not told of yet.
    [[nodiscard]] std::uint64_t rules_for_cgroup(const std::string& path, const Pod* pod = nullptr) const;
    // Bit n: group n has a rule that allows; for denying(), one that denies.
    [[nodiscard]] std::uint64_t allowing() const { return allowing_; }
    [[nodiscard]] std::uint64_t denying() const { return denying_; }
    // Whether a rule may deny this pod, or allow it less than other rules do, once the API server has told of it, or of
    // its namespace. nullptr: the pod is not known.
    [[nodiscard]] bool may_yet_limit(const Pod* pod) const;
    // The keys of labels and annotations, of pods and of namespaces, that rules ask for.
    [[nodiscard]] std::set<std::string> pod_keys() const;
    // Bit n: group n has a rule that allows, and not the bypass.
    [[nodiscard]] std::uint64_t without_bypass() const { return without_bypass_; }

    [[nodiscard]] const std::vector<smc_rule>& table() const { return table_; }
    // The name of the rule that a row of the table comes from; "default" for -1.
    [[nodiscard]] std::string rule_name(int row) const;
    [[nodiscard]] bool default_allow() const { return default_allow_; }

 private:
    // The applications that rules are about.
    struct Group {
        std::vector<std::string> cgroups;
        std::vector<PodSelector> pods;

        bool operator==(const Group&) const = default;
    };
    // The permissions that a rule gives to its applications.
    struct Grants {
        std::uint32_t local = 0;  // enum smc_local
        bool smcd = false, past_limits = false;

        [[nodiscard]] Grants united(const Grants& other) const;
        bool operator==(const Grants&) const = default;
    };
    [[nodiscard]] static Grants grants_of(const smc_rule& row);

    std::vector<Group> groups_;
    std::vector<smc_rule> table_;
    std::vector<std::string> names_;  // of the rule of each row
    std::uint64_t allowing_ = 0, denying_ = 0, without_bypass_ = 0;
    std::uint64_t limiting_ = 0;  // groups with a rule that denies, or that allows less than another rule
    bool default_allow_;
};

}  // namespace smc
