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

TEST_CASE("policy__a_pod_that_may_yet_be_denied_or_limited_waits_for_the_api_server") {
    const Pod half = pod_of(false), whole = pod_of(true);
    const auto nobody = policy(kAll);
    const auto by_label = policy(R"({"name": "out", "action": "deny", "pods": [{"labels": {"smc": "off"}}]},)" + kAll);
    CHECK_FALSE(nobody.may_yet_limit(nullptr));
    CHECK(by_label.may_yet_limit(nullptr));
    CHECK_FALSE(by_label.may_yet_limit(&half));
    for (const char* what : {"namespace_labels", "namespace_annotations"}) {
        const std::string out = R"({"name": "out", "action": "deny", "pods": [{")" + std::string(what);
        const auto by_namespace = policy(out + R"(": {"smc": "off"}}]},)" + kAll);
        CHECK(by_namespace.may_yet_limit(nullptr));
        CHECK(by_namespace.may_yet_limit(&half));
        CHECK_FALSE(by_namespace.may_yet_limit(&whole));
    }
}

TEST_CASE("policy__a_pod_that_may_yet_be_allowed_less_than_others_waits_for_the_api_server") {
    for (const char* less : {R"("past_limits": false)", R"("smcd": false)", R"("bypass": "off")", R"("tune": false)"}) {
        const std::string rule = R"({"name": "few", "action": "allow", "pods": [{"labels": {"x": "*"}}], )";
        const auto limits = policy(rule + less + R"(}, {"name": "rest", "action": "allow", "cgroups": ["*"],
                                                       "past_limits": true, "smcd": true, "bypass": "auto"})");
        CHECK(limits.may_yet_limit(nullptr));
    }
    const std::string forced =
        R"({"name": "few", "action": "allow", "pods": [{"labels": {"x": "*"}}], "bypass": "force"},
                                  {"name": "rest", "action": "allow", "cgroups": ["*"], "bypass": "auto"})";
    CHECK_FALSE(policy(forced).may_yet_limit(nullptr));
    const std::string more = R"({"name": "few", "action": "allow", "pods": [{"labels": {"x": "*"}}], "smcd": true})";
    CHECK_FALSE(policy(more + "," + kAll).may_yet_limit(nullptr));
}

// The list of networks that Multus reads from an annotation has brackets.
TEST_CASE("policy__only_the_star_is_special_in_a_pattern") {
    Pod pod = pod_of(true);
    pod.annotations["networks"] = R"([{"name":"storage"}])";
    const auto selects = [&](const std::string& value) {
        const auto one = policy(R"({"name": "x", "action": "deny", "pods": [{"annotations": {"networks": ")" + value +
                                R"("}}]},)" + kAll);
        return (one.rules_for_cgroup("/x", &pod) & one.denying()) != 0;
    };
    for (const char* yes :
         {R"([{\"name\":\"storage\"}])", "*", "[*]", "*storage*", R"(*\"}])", "**stor**", "[{*m*g*"}) {
        INFO(yes);
        CHECK(selects(yes));
    }
    for (const char* no : {"?*", "[[]*", "*storage", "storage*", "[{*g*m*"}) {
        INFO(no);
        CHECK_FALSE(selects(no));
    }
}

TEST_CASE("policy__names_the_keys_that_its_rules_ask_for") {
    const auto some = policy(
        R"({"name": "a", "action": "allow", "pods": [{"labels": {"x": "*"}}, {"annotations": {"y": "1"}}]},
           {"name": "b", "action": "deny", "pods": [{"namespace_labels": {"z": "*"}},
                                                    {"namespace_annotations": {"y": "2"}}]})");
    CHECK(some.pod_keys() == std::set<std::string>{"x", "y", "z"});
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
