// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A RST or an ICMP error in answer to a SYN with options.
#include "bpf/arriving.h"

using namespace smc;
using namespace smc::test::arriving;

namespace {

// An ICMP error about the client's SYN, from a router, with its Ethernet header.
Bytes icmp_error(const Family& family, std::uint8_t code, std::uint32_t isn = kIsn) {
    const std::size_t at = family.tcp_at(), ip_bytes = at - 14;
    Bytes packet = answer(family, kAck, 0, 0, {});
    packet[family.v6 ? 20 : 23] = family.v6 ? 58 : 1;
    packet.resize(at + 8 + ip_bytes + 8);
    packet[at] = family.v6 ? 1 : 3;
    packet[at + 1] = code;
    const std::size_t quoted = at + 8;
    std::copy_n(packet.begin() + 14, ip_bytes, packet.begin() + static_cast<std::ptrdiff_t>(quoted));
    packet[quoted + (family.v6 ? 6 : 9)] = 6;
    const std::size_t addresses = quoted + (family.v6 ? 8 : 12);
    const int kind = family.v6 ? AF_INET6 : AF_INET;
    ::inet_pton(kind, family.client(), &packet[addresses]);
    ::inet_pton(kind, family.server(), &packet[addresses + (family.v6 ? 16 : 4)]);
    put16(packet, quoted + ip_bytes, 40000);
    put16(packet, quoted + ip_bytes + 2, 80);
    put32(packet, quoted + ip_bytes + 4, isn);
    return packet;
}

}  // namespace

TEST_CASE("reset__ends_the_request_that_it_answers_and_no_other") {
    enter_a_namespace();
    Node node;
    const Family family{false};
    struct Case {
        smc_request_state state;
        std::uint32_t ack;
        bool ends;
    };
    for (const Case& one : {Case{SMC_REQUEST_ASKED_BARE, kIsn + 1, true}, Case{SMC_REQUEST_ASKED, kIsn, false},
                            Case{SMC_REQUEST_LET_GO, kIsn + 1, false}, Case{SMC_REQUEST_HELD, kIsn + 1, false}}) {
        CAPTURE(one.state, one.ack);
        const Bytes rst = answer(family, kRst | kAck, 0, one.ack, {});
        node.ask(family, one.state);
        node.arrive(rst);
        CHECK(node.verdict == kGoesOn);
        CHECK(node.out == rst);
        CHECK(node.state(family).has_value() != one.ends);
    }
    const Bytes fin = answer(family, kFin | kAck, kServersIsn, kIsn + 1, kSmcOption);
    node.arrive(fin);
    CHECK(node.out == fin);
    CHECK(node.state(family) == SMC_REQUEST_HELD);
}

// A firewall may refuse SYNs with unknown options, so only the answer to the SYN without options counts.
TEST_CASE("reset__in_answer_to_options_is_hidden_and_the_agent_sends_the_syn_without_them") {
    enter_a_namespace();
    Node node;
    for (const Family family : {Family{false}, Family{true}}) {
        CAPTURE(family.v6);
        const Bytes rst = answer(family, kRst | kAck, 0, kIsn + 1, {});
        const auto key = tuple_of(family.client_end(), family.server_end(), 0);
        const auto let_go = [&] {
            smc_request request = node.requests().get(key).value();
            request.state = SMC_REQUEST_LET_GO;
            REQUIRE(node.requests().put(key, request));
        };
        for (const bool is_closed : {true, false}) {
            node.ask(family, SMC_REQUEST_ASKED);
            node.arrive(rst);
            CHECK(node.verdict == kDropped);
            CHECK(node.counted() == Counted{{"SMC_ANSWER_RESET", 1}});
            CHECK(node.state(family) == SMC_REQUEST_HELD);
            REQUIRE(node.told.size() == 1);
            CHECK(node.told[0].type == SMC_EVENT_RESET);
            node.told.clear();
            node.arrive(rst);  // some firewalls send several
            CHECK((node.verdict == kDropped && node.told.empty() && node.state(family) == SMC_REQUEST_HELD));
            if (!is_closed) {
                let_go();  // as the agent does
            }
            // A box may refuse the request and pass it on as well: only the SYN without options counts.
            node.arrive(answer(family, kSyn | kAck, kServersIsn + 1, kIsn + 1, kSmcOption));
            CHECK((node.verdict == kRedirected && node.state(family)));
            CHECK(node.counted() == Counted{{"SMC_ANSWER_AGAIN", 1}});
            let_go();
            const Bytes next = is_closed ? rst : answer(family, kSyn | kAck, kServersIsn, kIsn + 1, {2, 4, 5, 180});
            node.arrive(next);
            CHECK(node.verdict == kGoesOn);
            CHECK(node.out == next);
            CHECK(node.counted() == (is_closed ? Counted{} : Counted{{"SMC_ANSWER_LOST", 1}}));
            CHECK_FALSE(node.state(family));
            const auto server = node.programs->knows(node.cookie, family.server_end());
            REQUIRE(server);
            CHECK(server->reason == (is_closed ? SMC_REASON_CONNECT_FAILED : SMC_REASON_OPTION_LOST));
        }
        // A pause that is over is no knowledge.
        const bpf::Map<smc_dest, smc_server> servers(node.programs->map_fd("smc_servers"));
        const smc_dest dest{node.cookie, to_abi(family.server_end()), 0};
        smc_server old = servers.get(dest).value();
        old.expires_ns = 1;
        REQUIRE(servers.put(dest, old));
        node.ask(family, SMC_REQUEST_ASKED);
        node.arrive(rst);
        CHECK(node.programs->knows(node.cookie, family.server_end())->reason == SMC_REASON_CONNECT_FAILED);
        (void)node.counted();
        node.told.clear();
        // A pause replaces nothing that another connection has learnt.
        node.programs->remember(node.cookie, family.server_end(), SMC_SERVER_CAPABLE, Reason::kNone,
                                std::chrono::seconds(60), 0);
        node.ask(family, SMC_REQUEST_ASKED);
        node.arrive(rst);
        CHECK(node.programs->knows(node.cookie, family.server_end())->knowledge == SMC_SERVER_CAPABLE);
        CHECK(node.counted() == Counted{{"SMC_ANSWER_RESET", 1}});
        node.told.clear();
    }
    node.listeners.clear();  // without an agent the RST is believed
    const Family family{false};
    node.ask(family, SMC_REQUEST_ASKED);
    node.arrive(answer(family, kRst | kAck, 0, kIsn + 1, {}));
    CHECK(node.verdict == kGoesOn);
    CHECK_FALSE(node.state(family));
    CHECK(node.told.empty());
}

TEST_CASE("icmp__of_a_firewall_in_answer_to_options_is_hidden_like_a_reset") {
    enter_a_namespace();
    Node node;
    struct Case {
        bool v6;
        std::uint8_t code;
        bool of_a_firewall;
    };
    for (const Case& one : {Case{false, 0, false}, Case{false, 1, false}, Case{false, 2, true}, Case{false, 3, true},
                            Case{false, 4, false}, Case{false, 9, true}, Case{false, 10, true}, Case{false, 13, true},
                            Case{false, 255, false}, Case{true, 0, false}, Case{true, 1, true}, Case{true, 3, false},
                            Case{true, 4, true}, Case{true, 5, true}, Case{true, 6, true}, Case{true, 200, false}}) {
        CAPTURE(one.v6, static_cast<int>(one.code));
        const Family family{one.v6};
        const auto key = tuple_of(family.client_end(), family.server_end(), 0);
        const Bytes error = icmp_error(family, one.code);
        node.ask(family, SMC_REQUEST_ASKED);
        const Bytes other = icmp_error(family, one.code, kIsn + 1);
        node.arrive(other);
        CHECK((node.verdict == kGoesOn && node.out == other && node.state(family) == SMC_REQUEST_ASKED));
        node.arrive(error);
        CHECK(node.verdict == (one.of_a_firewall ? kDropped : kGoesOn));
        CHECK(node.counted() == (one.of_a_firewall ? Counted{{"SMC_ANSWER_RESET", 1}} : Counted{}));
        CHECK(node.state(family) == (one.of_a_firewall ? SMC_REQUEST_HELD : SMC_REQUEST_ASKED));
        REQUIRE(node.told.size() == (one.of_a_firewall ? 1 : 0));
        node.told.clear();
        if (one.of_a_firewall) {
            smc_request request = node.requests().get(key).value();
            request.state = SMC_REQUEST_LET_GO;  // the agent has sent the SYN without options
            REQUIRE(node.requests().put(key, request));
            node.arrive(error);
            CHECK((node.verdict == kGoesOn && node.out == error && !node.state(family)));
            // It is not asked again soon, because routers send few ICMP errors.
            const auto server = node.programs->knows(node.cookie, family.server_end());
            REQUIRE(server);
            CHECK(server->expires_ns > os::monotonic_ns() + 30'000'000'000);
            node.programs->forget(node.cookie, family.server_end());
        }
        for (std::size_t length = family.tcp_at(); length < error.size(); length++) {  // broken ones
            node.arrive({error.begin(), error.begin() + static_cast<std::ptrdiff_t>(length)});
            CHECK(node.verdict == kGoesOn);
        }
    }
}
