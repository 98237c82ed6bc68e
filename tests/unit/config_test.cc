// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/config/config.h"

#include <catch2/catch.hpp>

#include "agent/policy/policy.h"

using namespace smc;

namespace {

std::string problem(const std::string& json) {
    const auto parsed = parse_config(json);
    const auto* p = std::get_if<ConfigProblem>(&parsed);
    return p != nullptr ? p->pointer + ": " + p->text : "";
}

Config config(const std::string& json) {
    return std::get<Config>(parse_config(json));
}

Policy::Decision decide(const Policy& policy, const char* cgroup, const char* remote,
                        smc_direction direction = SMC_OUTBOUND) {
    const auto e = *Endpoint::parse(remote);
    return policy.decide(policy.rules_for_cgroup(cgroup), e, e.port, direction);
}

}  // namespace

TEST_CASE("default__is_valid_and_survives_a_round_trip") {
    const std::string text = print_config({});
    const auto parsed = parse_config(text);
    REQUIRE(std::holds_alternative<Config>(parsed));
    CHECK(print_config(std::get<Config>(parsed)) == text);
    CHECK(problem("{}").empty());
}

TEST_CASE("problem__names_pointer_found_and_allowed") {
    CHECK(problem(R"({"limits": {"connections": "many"}})") ==
          R"(/limits/connections: found "many", allowed: integer from 1 to 1000000)");
    CHECK(problem(R"({"limits": {"connections": 0}})") ==
          "/limits/connections: found 0, allowed: integer from 1 to 1000000");
    CHECK(problem(R"({"limits": {"conections": 5}})") ==
          "/limits/conections: found an unknown key, allowed: connections");
    CHECK(problem(R"({"tc": 1})").starts_with("/tc: found an unknown key, allowed: $schema, bpf, cgroup"));
    CHECK(problem(R"({"bpf": {"tc": "xdp"}})") == R"(/bpf/tc: found "xdp", allowed: "auto", "tcx", "clsact")");
    CHECK(problem(R"({"policy": {"rules": [{"name": "x", "action": "allow"}, {"name": "y"}]}})") ==
          R"(/policy/rules/1: found no key "action", allowed: an object with it)");
    CHECK(problem(R"([])").starts_with(": found [], allowed: object"));
    CHECK(problem("{").starts_with(": not JSON"));
}

TEST_CASE("problem__what_a_schema_cannot_say") {
    const auto rule = [](const std::string& rest) {
        return problem(R"({"policy": {"rules": [{"name": "x", "action": "allow", )" + rest + "}]}}");
    };
    CHECK(rule(R"("remotes": ["10.0.0.0/33"])") ==
          R"(/policy/rules/0/remotes/0: found "10.0.0.0/33", allowed: an IPv4 or IPv6 address, or address/bits)");
    CHECK(rule(R"("ports": ["80", "90-80"])") ==
          R"(/policy/rules/0/ports/1: found "90-80", allowed: a port from 0 to 65535, or first-last)");
    CHECK(problem(R"({"smc": {"ueids": ["A..B"]}})") == R"(/smc/ueids/0: found "A..B", allowed: no two dots in a row)");
    CHECK_FALSE(problem(R"({"smc": {"ueids": []}})").empty());
    CHECK(problem(R"({"smc": {"ueids": [], "seid": "SYS"}})").empty());
}

TEST_CASE("cidr__families_and_host_bits") {
    CHECK(parse_cidr("10.1.2.3/8")->bits == 104);
    CHECK(parse_cidr("10.1.2.3/8")->prefix[13] == 0);
    CHECK(parse_cidr("::/0")->bits == 0);
    CHECK(parse_cidr("10.0.0.1")->bits == 128);
    CHECK_FALSE(parse_cidr("fd00::/129"));
    CHECK_FALSE(parse_cidr("300.0.0.1"));
}

TEST_CASE("policy__first_match_decides") {
    const Policy policy(config(R"({"policy": {"default": "deny", "rules": [
        {"name": "no-dns", "action": "deny", "ports": ["53"]},
        {"name": "web", "action": "allow", "cgroups": ["/web*"], "remotes": ["10.0.0.0/8"], "ports": ["80", "8000-8999"]},
        {"name": "v6", "action": "allow", "remotes": ["fd00::/8"], "direction": "outbound"}]}})"));
    CHECK(decide(policy, "/web/1", "10.1.1.1:80").rule == "web");
    CHECK(decide(policy, "/web/1", "10.1.1.1:8500").allow);
    CHECK(decide(policy, "/web/1", "10.1.1.1:53").rule == "no-dns");
    CHECK_FALSE(decide(policy, "/web/1", "10.1.1.1:53").allow);
    CHECK(decide(policy, "/db", "10.1.1.1:80").rule == "default");
    CHECK(decide(policy, "/db", "[fd01::1]:80").allow);
    CHECK_FALSE(decide(policy, "/db", "[fd01::1]:80", SMC_INBOUND).allow);
    CHECK_FALSE(decide(policy, "/web/1", "11.0.0.1:80").allow);
}

TEST_CASE("policy__a_cidr_is_of_its_own_family_only") {
    const Policy policy(config(R"({"policy": {"rules": [
        {"name": "no-v6", "action": "deny", "remotes": ["::/0"]},
        {"name": "v4", "action": "allow", "remotes": ["0.0.0.0/0"]}]}})"));
    CHECK(decide(policy, "/a", "10.0.0.1:80").rule == "v4");
    CHECK(decide(policy, "/a", "[fd00::1]:80").rule == "no-v6");
}

TEST_CASE("policy__the_default_configuration_takes_private_networks") {
    const Policy policy{Config{}};
    for (const char* remote : {"10.0.0.1:1", "172.31.0.1:80", "192.168.1.1:65535", "[fd00::1]:443"}) {
        CHECK(decide(policy, "/any", remote).allow);
    }
    for (const char* remote : {"127.0.0.1:80", "8.8.8.8:53", "172.32.0.1:80", "[::1]:80", "[2001:db8::1]:80"}) {
        CHECK_FALSE(decide(policy, "/any", remote).allow);
    }
}
