// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the policy says of pods before, and after, the API server has told of them.
#include "agent/policy/policy.h"

#include <catch2/catch.hpp>

using namespace smc;

namespace {

Policy policy(const std::string& rules) {
    return Policy(std::get<Config>(parse_config(
        R"({"kubernetes": {"api": "in-cluster"}, "policy": {"default": "deny", "rules": [)" + rules + "]}}")));
}

const std::string kAll = R"({"name": "rest", "action": "allow", "cgroups": ["*"]})";

Pod pod_of(bool namespace_known) {
    Pod pod;
    pod.name = "web-0";
    pod.namespace_known = namespace_known;
    return pod;
}

}  // namespace

TEST_CASE("policy__a_pod_that_may_yet_be_denied_waits_for_the_api_server") {
    const Pod half = pod_of(false), whole = pod_of(true);
    const auto nobody = policy(kAll);
    const auto by_label = policy(R"({"name": "out", "action": "deny", "pods": [{"labels": {"smc": "off"}}]},)" + kAll);
    CHECK_FALSE(nobody.may_yet_deny(nullptr));
    CHECK(by_label.may_yet_deny(nullptr));
    CHECK_FALSE(by_label.may_yet_deny(&half));
    for (const char* what : {"namespace_labels", "namespace_annotations"}) {
        const std::string out = R"({"name": "out", "action": "deny", "pods": [{")" + std::string(what);
        const auto by_namespace = policy(out + R"(": {"smc": "off"}}]},)" + kAll);
        CHECK(by_namespace.may_yet_deny(nullptr));
        CHECK(by_namespace.may_yet_deny(&half));
        CHECK_FALSE(by_namespace.may_yet_deny(&whole));
    }
}

TEST_CASE("policy__says_which_rules_allow_smc_and_not_the_bypass") {
    const auto mixed = policy(
        R"({"name": "off", "action": "allow", "bypass": "off", "pods": [{"labels": {"x": "*"}}]},
           {"name": "on", "action": "allow", "bypass": "auto", "cgroups": ["/web*"]},
           {"name": "no", "action": "deny", "cgroups": ["/batch*"]})");
    CHECK(mixed.without_bypass() == 1);
    CHECK(mixed.allowing() == 3);
    CHECK(mixed.denying() == 4);
}

// systemd escapes a "-" in the names of template units, and their control groups have these names.
TEST_CASE("policy__a_backslash_in_a_glob_stands_for_itself") {
    const auto escaped = policy(R"({"name": "out", "action": "deny", "cgroups": ["/system-my\\x2dapp.slice/*"]})");
    CHECK(escaped.rules_for_cgroup("/system-my\\x2dapp.slice/one.service") != 0);
    CHECK(escaped.rules_for_cgroup("/system-myx2dapp.slice/one.service") == 0);
}
