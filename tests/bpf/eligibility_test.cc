// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The real programs, run by BPF_PROG_TEST_RUN: which rule matches, and what `smcctl explain` is answered. Needs root.
#include <arpa/inet.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "agent/steer/eligibility.h"
#include "bpf/loaded.h"

using namespace smc;
using nlohmann::json;

namespace {

// Whether the check of this decision is in the way.
bool bit(const smc_query& answer, smc_decision decision) {
    return (answer.failed >> decision & 1) != 0;
}

}  // namespace

TEST_CASE("policy__first_match_decides") {
    Loaded p(json::parse(R"({"default": "deny", "rules": [
        {"name": "no-dns", "action": "deny", "ports": ["53"]},
        {"name": "web", "action": "allow", "cgroups": ["/web*"], "remotes": ["10.0.0.0/8"],
          "ports": ["80", "8000-8999"]},
        {"name": "v6", "action": "allow", "remotes": ["fd00::/8"], "direction": "outbound"}]})"));
    CHECK(p.rule("/web/1", "10.1.1.1:80") == "web");
    CHECK_FALSE(p.denied("/web/1", "10.1.1.1:8500"));
    CHECK(p.rule("/web/1", "10.1.1.1:53") == "no-dns");
    CHECK(p.denied("/web/1", "10.1.1.1:53"));
    CHECK(p.rule("/db", "10.1.1.1:80") == "default");
    CHECK_FALSE(p.denied("/db", "[fd01::1]:80"));
    CHECK(p.denied("/db", "[fd01::1]:80", SMC_INBOUND));
    CHECK(p.denied("/web/1", "11.0.0.1:80"));
}

TEST_CASE("policy__a_cidr_is_of_its_own_family_only") {
    Loaded p(json::parse(R"({"rules": [{"name": "no-v6", "action": "deny", "remotes": ["::/0"]},
                                       {"name": "v4", "action": "allow", "remotes": ["0.0.0.0/0"]}]})"));
    CHECK(p.rule("/a", "10.0.0.1:80") == "v4");
    CHECK(p.rule("/a", "[fd00::1]:80") == "no-v6");
}

TEST_CASE("policy__the_default_configuration_takes_private_networks") {
    Loaded p(json::parse(print_config({}))["policy"]);
    for (const char* remote : {"10.0.0.1:1", "172.31.0.1:80", "192.168.1.1:65535", "[fd00::1]:443"}) {
        CHECK_FALSE(p.denied("/any", remote));
    }
    for (const char* remote : {"127.0.0.1:80", "8.8.8.8:53", "172.32.0.1:80", "[::1]:80", "[2001:db8::1]:80"}) {
        CHECK(p.denied("/any", remote));
    }
}

TEST_CASE("explain__every_check_is_answered_or_open") {
    Loaded p(json::parse(R"({"default": "allow"})"));
    for (const bpf::Check& check : bpf::kOutboundChecks) {
        CHECK(((p.ask("/a", "10.0.0.1:80").needs_socket >> check.decision & 1) != 0) == check.of_socket);
    }
    CHECK(p.ask("/a", "10.0.0.1:80").failed == 1ULL << SMC_OUT_AGENT_GONE);
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in loopback{};
    loopback.sin_family = AF_INET;
    loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&loopback), sizeof loopback) == 0);
    REQUIRE(::listen(listener.get(), 1) == 0);
    REQUIRE(p.programs->clc_listeners.put(1 * 2, static_cast<std::uint64_t>(listener.get())));  // slot 1, IPv4
    CHECK(p.ask("/a", "10.0.0.1:80").failed == 0);
    CHECK(p.ask("/a", "[fd00::1]:80").failed == 1ULL << SMC_OUT_AGENT_GONE);
    CHECK(bit(p.ask("/a", "[fe80::1]:80"), SMC_OUT_SPECIAL));
    CHECK(bit(p.ask("/a", "[::]:80"), SMC_OUT_SPECIAL));
    CHECK(bit(p.ask("/a", "0.0.0.0:80"), SMC_OUT_SPECIAL));
    CHECK(bit(p.ask("/a", "127.0.0.1:80"), SMC_OUT_LOOPBACK));
    CHECK(bit(p.ask("/a", "[::1]:80"), SMC_OUT_LOOPBACK));
    const auto minute = std::chrono::seconds(60);
    p.programs->remember(1, *Endpoint::parse("10.0.0.1:80"), SMC_SERVER_NOT_NOW, Reason::kBudget, minute);
    CHECK(bit(p.ask("/a", "10.0.0.1:80"), SMC_OUT_NOT_NOW));
    CHECK_FALSE(bit(p.ask("/a", "10.0.0.1:81"), SMC_OUT_NOT_NOW));
    p.programs->remember(1, *Endpoint::parse("10.0.0.1:80"), SMC_SERVER_CAPABLE, Reason::kNone, minute);
    CHECK_FALSE(bit(p.ask("/a", "10.0.0.1:80"), SMC_OUT_NOT_NOW));
    p.query.netns = 2;
    CHECK(bit(p.ask("/a", "10.0.0.1:81"), SMC_OUT_NETNS_UNKNOWN));
    CHECK(bit(p.ask("/a", "10.0.0.1:81"), SMC_OUT_NOT_SERVED));
    p.query.netns = 1;
    REQUIRE(p.programs->netns.put(1, {1, 1, 0, 0, 0, 1}));
    CHECK_FALSE(bit(p.ask("/a", "10.0.0.1:81"), SMC_OUT_NOT_SERVED));
    CHECK(bit(p.ask("/a", "[fd00::1]:81"), SMC_OUT_NOT_SERVED));
    p.serves = false;
    CHECK(bit(p.ask("/a", "10.0.0.1:81"), SMC_OUT_AGENT_FULL));
    CHECK_FALSE(bit(p.ask("/a", "10.0.0.1:81"), SMC_OUT_AGENT_STALE));
}

// The agent pauses a listener by its port alone. That concerns neither other ports nor connections to such a port.
TEST_CASE("explain__a_listener_whose_leg_was_lost_is_left_alone_until_the_pause_ends") {
    Loaded p(json::parse(R"({"default": "allow"})"));
    const Endpoint listener{{}, 80};
    p.programs->remember(1, listener, SMC_SERVER_NOT_NOW, Reason::kNoLeg, std::chrono::seconds(60));
    for (const auto* client : {"10.0.0.1:80", "[fd00::1]:80"}) {
        CHECK(bit(p.ask("/a", client, SMC_INBOUND), SMC_IN_NO_LEG));
        CHECK_FALSE(bit(p.ask("/a", client, SMC_OUTBOUND), SMC_OUT_NOT_NOW));
    }
    CHECK_FALSE(bit(p.ask("/a", "10.0.0.1:81", SMC_INBOUND), SMC_IN_NO_LEG));
    p.programs->forget(1, listener);
    CHECK_FALSE(bit(p.ask("/a", "10.0.0.1:80", SMC_INBOUND), SMC_IN_NO_LEG));
}

TEST_CASE("explain__what_limits_a_device_or_a_pod_is_gone_past_by_rule_only") {
    const bool by_default = GENERATE(false, true);
    Loaded p(json::parse(R"({"default": "allow", "rules": [
        {"name": "past", "action": "allow", "ports": ["80"], "past_limits": true},
        {"name": "not past", "action": "allow", "ports": ["81"], "past_limits": false},
        {"name": "by default", "action": "allow", "ports": ["82"]}], "past_limits": )" +
                         std::string(by_default ? "true}" : "false}")));
    const auto limited = [&](const char* address, smc_direction direction) {
        const smc_decision decision = direction == SMC_OUTBOUND ? SMC_OUT_LIMITED : SMC_IN_LIMITED;
        return bit(p.ask("/a", address, direction), decision);
    };
    for (const smc_direction direction : {SMC_OUTBOUND, SMC_INBOUND}) {
        REQUIRE(p.programs->netns.put(1, {1, 1, 1, 0, 0, 1}));
        CHECK_FALSE(limited("10.0.0.1:81", direction));
        REQUIRE(p.programs->netns.put(1, {1, 1, 1, 0, 1, 1}));
        CHECK_FALSE(limited("10.0.0.1:80", direction));
        CHECK(limited("10.0.0.1:81", direction));
        CHECK(limited("10.0.0.1:82", direction) == !by_default);
        CHECK(limited("10.0.0.1:99", direction) == !by_default);  // no rule
    }
}

TEST_CASE("explain__short_lived_connections_are_left_to_tcp_until_one_is_tried") {
    const bool by_default = GENERATE(false, true);
    Loaded p(json::parse(R"({"default": "allow", "rules": [
        {"name": "all", "action": "allow", "ports": ["80"], "short_lived": true},
        {"name": "not", "action": "allow", "ports": ["81"], "short_lived": false},
        {"name": "by default", "action": "allow", "ports": ["82"]}], "short_lived": )" +
                         std::string(by_default ? "true}" : "false}")));
    const bpf::Map<smc_short_key, smc_short> table(p.programs->map_fd("smc_short"));
    for (const smc_direction direction : {SMC_OUTBOUND, SMC_INBOUND}) {
        const auto left = [&](const char* address) {
            const smc_decision decision = direction == SMC_OUTBOUND ? SMC_OUT_SHORT_LIVED : SMC_IN_SHORT_LIVED;
            return bit(p.ask("/a", address, direction), decision);
        };
        const auto kind = [&](std::uint16_t port) {
            smc_short_key key{1, 7, {}, static_cast<__u32>(direction)};
            if (direction == SMC_OUTBOUND) {
                key.server = to_abi(*Endpoint::parse("10.0.0.1:80"));
            }
            key.server.port = port;
            return key;
        };
        const std::size_t before = p.programs->kinds_left_to_tcp().size();
        for (const std::uint16_t port : std::initializer_list<std::uint16_t>{80, 81, 82}) {
            for (int i = 1; i < SMC_SHORT_MANY; i++) {
                p.programs->judge(kind(port), true);
            }
            CHECK_FALSE(left(("10.0.0.1:" + std::to_string(port)).c_str()));
            p.programs->judge(kind(port), true);
        }
        CHECK(p.programs->kinds_left_to_tcp().size() == before + 3);
        CHECK_FALSE(left("10.0.0.1:80"));
        CHECK(left("10.0.0.1:81"));
        CHECK(left("10.0.0.1:82") == !by_default);
        CHECK(left("10.0.0.2:81") == (direction == SMC_INBOUND));  // a listener's clients are of one kind
        CHECK_FALSE(left("10.0.0.1:83"));
        // a trial wants a second and many connections, or a minute
        auto entry = table.get(kind(81)).value();
        CHECK(entry.score == SMC_SHORT_MANY);
        const auto when = entry.tried_ns;
        const auto set = [&](std::uint32_t skipped, std::uint64_t ago) {
            entry.left = skipped;
            entry.tried_ns = when - ago;
            REQUIRE(table.put(kind(81), entry));
            return left("10.0.0.1:81");
        };
        CHECK(set(SMC_SHORT_TRIAL_EVERY - 1, SMC_SHORT_TRIAL_NS));
        CHECK_FALSE(set(SMC_SHORT_TRIAL_EVERY, SMC_SHORT_TRIAL_NS));
        CHECK_FALSE(set(0, SMC_SHORT_TRIAL_LATEST_NS));
        CHECK(set(0, 0));
        // one that is worth it is followed by others, and as many that are not stop that
        p.programs->judge(kind(81), false);
        CHECK_FALSE(left("10.0.0.1:81"));
        for (int i = 0; i < 3; i++) {
            p.programs->judge(kind(81), true);
        }
        CHECK_FALSE(left("10.0.0.1:81"));
        p.programs->judge(kind(81), true);
        CHECK(left("10.0.0.1:81"));
        for (int i = 0; i < 10; i++) {
            p.programs->judge(kind(81), false);
        }
        CHECK(table.get(kind(81))->score == 0);
        p.programs->judge(kind(84), false);
        CHECK_FALSE(table.get(kind(84)));  // no entry for what is no trouble
    }
}

TEST_CASE("explain__without_roce_only_what_wants_smcd_within_the_node_is_asked") {
    Loaded p(json::parse(R"({"default": "allow", "rules": [
        {"name": "wants", "action": "allow", "ports": ["80"], "smcd": true},
        {"name": "silent", "action": "allow", "ports": ["81"]},
        {"name": "not", "action": "allow", "ports": ["82"], "smcd": false}]})"),
             false);
    const auto nothing = [&](const char* address, smc_direction direction) {
        return (p.ask("/a", address, direction).failed >>
                    (direction == SMC_OUTBOUND ? SMC_OUT_NO_DEVICE : SMC_IN_NO_DEVICE) &
                1) != 0;
    };
    for (const smc_direction direction : {SMC_OUTBOUND, SMC_INBOUND}) {
        CHECK_FALSE(nothing("10.0.0.1:80", direction));
        for (const char* other : {"10.0.0.1:81", "10.0.0.1:82", "10.0.0.1:83"}) {
            CHECK(nothing(other, direction));
        }
    }
    p.roce = true;
    CHECK_FALSE(nothing("10.0.0.1:82", SMC_OUTBOUND));
    CHECK_FALSE(nothing("10.0.0.1:83", SMC_INBOUND));
}
