// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The real programs with their maps, for tests that run them by BPF_PROG_TEST_RUN. Needs root.
#pragma once

#include <unistd.h>

#include <catch2/catch.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>

#include "agent/steer/addresses.h"
#include "agent/steer/programs.h"

namespace smc {

using nlohmann::json;

inline Config config_of(const json& policy, bool smcd) {
    const json config = {{"policy", policy},
                         {"local", {{"smcd", smcd}}},
                         {"bpf", {{"pin_path", "/sys/fs/bpf/smc-test-" + std::to_string(::getpid())}}}};
    auto parsed = parse_config(config.dump());
    REQUIRE(std::holds_alternative<Config>(parsed));
    return std::get<Config>(parsed);
}

// The programs with their maps, and a query to ask.
struct Loaded {
    explicit Loaded(const json& policy_text, bool smcd = true)
        : config(config_of(policy_text, smcd)), policy(config), programs(*bpf::Programs::load(config, policy)) {
        query.direction = SMC_OUTBOUND;
        query.netns = 1;
        REQUIRE(programs->netns.put(1, {1, 1, 1, 0, 0, 1}));
    }
    smc_query ask(const char* cgroup, const char* address, smc_direction direction = SMC_OUTBOUND) {
        const std::uint64_t rules = policy.rules_for_cgroup(cgroup);
        REQUIRE(programs->cgroups.put(7, {rules, rules != 0 || policy.default_allow() ? 1U : 0U, 0, 0}));
        const auto remote = *Endpoint::parse(address);
        query.cgroup = 7;
        query.remote = to_abi(remote);
        query.port = remote.port;
        query.direction = static_cast<__u8>(direction);
        programs->beat(serves, roce);
        const auto answer = programs->explain(query);
        REQUIRE(answer);
        return *answer;
    }
    std::string rule(const char* cgroup, const char* address, smc_direction direction = SMC_OUTBOUND) {
        return policy.rule_name(ask(cgroup, address, direction).rule);
    }
    bool denied(const char* cgroup, const char* address, smc_direction direction = SMC_OUTBOUND) {
        const smc_decision decision = direction == SMC_OUTBOUND ? SMC_OUT_DENIED : SMC_IN_DENIED;
        return (ask(cgroup, address, direction).failed >> decision & 1) != 0;
    }

    Config config;
    Policy policy;
    std::unique_ptr<bpf::Programs> programs;
    smc_query query{};
    bool serves = true, roce = false;  // contents of the heartbeat, which is written before every query
};

}  // namespace smc
