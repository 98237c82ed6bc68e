// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The programs with packets that arrive, and with entries that age: a packet in, a verdict and the bytes out, and the
// maps before and after. There are no sockets of applications, so requests and legs are tested in netns.*.
#include "bpf/arriving.h"

using namespace smc;
using namespace smc::test::arriving;

namespace {

// Checks that the answer became a RST to the server, whose connection is half open.
void check_is_rst(const Node& node, const Family& family, const Bytes& in) {
    CHECK(node.verdict == kRedirected);
    const std::size_t at = family.tcp_at();
    const Bytes& out = node.out;
    REQUIRE(out.size() == at + 20);  // no options
    CHECK(std::memcmp(out.data(), &in[6], 6) == 0);
    CHECK(std::memcmp(&out[6], in.data(), 6) == 0);
    CHECK(out[family.v6 ? 21 : 22] == 64);
    const std::size_t addresses = family.v6 ? 22 : 26, size = family.v6 ? 16 : 4;
    CHECK(std::memcmp(&out[addresses], &in[addresses + size], size) == 0);
    CHECK(std::memcmp(&out[addresses + size], &in[addresses], size) == 0);
    CHECK(get16(out, at) == 40000);
    CHECK(get16(out, at + 2) == 80);
    CHECK(get32(out, at + 4) == kIsn + 1);
    CHECK(out[at + 13] == kRst);
    if (!family.v6) {
        CHECK(get16(out, 16) == 40);
        CHECK(sum_of(out, 14, 20) == 0xffff);
    } else {
        CHECK(get16(out, 18) == 20);
    }
    CHECK(family.tcp_sum(out) == 0xffff);
}

}  // namespace

TEST_CASE("answer__of_a_server_without_smc_ends_the_request") {
    enter_a_namespace();
    Node node;
    for (const Family family : {Family{false}, Family{true}}) {
        CAPTURE(family.v6);
        const Bytes plain = answer(family, kSyn | kAck, kServersIsn, kIsn + 1, {2, 4, 5, 180});
        node.ask(family, SMC_REQUEST_ASKED);
        node.arrive(plain);
        CHECK(node.verdict == kGoesOn);
        CHECK(node.out == plain);
        CHECK(node.counted() == Counted{{"SMC_ANSWER_PLAIN", 1}});
        CHECK_FALSE(node.state(family));

        node.ask(family, SMC_REQUEST_ASKED_BARE);
        node.arrive(plain);
        CHECK(node.out == plain);
        CHECK(node.counted() == Counted{{"SMC_ANSWER_LOST", 1}});
        CHECK_FALSE(node.state(family));
        const auto server = node.programs->knows(node.cookie, family.server_end());
        REQUIRE(server);
        CHECK(server->knowledge == SMC_SERVER_NOT_NOW);
        CHECK(server->reason == SMC_REASON_OPTION_LOST);
    }
    CHECK(node.told.empty());
}

// An older connection of the port may have answered the first SYN by an ACK.
TEST_CASE("answer__to_a_syn_that_was_repeated_at_once_shows_no_loss") {
    enter_a_namespace();
    Node node;
    const Family family{false};
    const Bytes plain = answer(family, kSyn | kAck, kServersIsn, kIsn + 1, {2, 4, 5, 180});
    for (const bool at_once : {true, false}) {
        node.ask(family, SMC_REQUEST_ASKED_BARE,
                 at_once ? os::monotonic_ns() - 300'000'000 : os::monotonic_ns() - 1'000'000'000);
        node.arrive(plain);
        CHECK((node.verdict == kGoesOn && !node.state(family)));
        CHECK(node.counted() == (at_once ? Counted{} : Counted{{"SMC_ANSWER_LOST", 1}}));
        CHECK(node.programs->knows(node.cookie, family.server_end()).has_value() == !at_once);
    }
}

TEST_CASE("answer__with_our_own_tag_is_an_echo_and_no_answer") {
    enter_a_namespace();
    Node node;
    for (const Family family : {Family{false}, Family{true}}) {
        Bytes options = kSmcOption;
        options.insert(options.end(), {254, 14, 0x53, 0x4d, 0x43, 0x41, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1});
        put32(options, kSmcOption.size() + 6, node.tag);
        const Bytes echo = answer(family, kSyn | kAck, kServersIsn, kIsn + 1, options);
        node.ask(family, SMC_REQUEST_ASKED);
        node.arrive(echo);
        CHECK(node.verdict == kGoesOn);
        CHECK(node.out == echo);
        CHECK(node.counted() == Counted{{"SMC_ANSWER_ECHOED", 1}});
        CHECK_FALSE(node.state(family));
    }
}

TEST_CASE("answer__with_option_254_is_the_agents_and_the_application_never_sees_it") {
    enter_a_namespace();
    Node node;
    for (const Family family : {Family{false}, Family{true}}) {
        CAPTURE(family.v6);
        const Bytes yes = answer(family, kSyn | kAck, kServersIsn, kIsn + 1, kSmcOption);
        node.ask(family, SMC_REQUEST_ASKED);
        node.arrive(yes);
        check_is_rst(node, family, yes);
        CHECK(node.counted() == Counted{{"SMC_ANSWER_SMC", 1}});
        CHECK(node.state(family) == SMC_REQUEST_HELD);
        REQUIRE(node.told.size() == 1);
        CHECK(node.told[0].type == SMC_EVENT_REQUEST);
        CHECK(node.told[0].request.answer_ttl == 57);
        node.told.clear();

        node.arrive(yes);  // a copy of it
        check_is_rst(node, family, yes);
        CHECK(node.counted() == Counted{{"SMC_ANSWER_AGAIN", 1}});
        CHECK(node.state(family) == SMC_REQUEST_HELD);

        const Bytes other = answer(family, kSyn | kAck, kServersIsn + 7, kIsn + 1, kSmcOption);
        node.arrive(other);  // an answer to the SYN without options
        CHECK(node.verdict == kGoesOn);
        CHECK(node.out == other);
        CHECK(node.counted().empty());
        CHECK_FALSE(node.state(family));
    }
    CHECK(node.told.empty());
}

TEST_CASE("answer__that_finds_no_agent_is_reset_and_the_next_syn_decides") {
    enter_a_namespace();
    Node node;
    node.listeners.clear();  // so it is gone
    for (const Family family : {Family{false}, Family{true}}) {
        const Bytes yes = answer(family, kSyn | kAck, kServersIsn, kIsn + 1, kSmcOption);
        node.ask(family, SMC_REQUEST_ASKED);
        node.arrive(yes);
        check_is_rst(node, family, yes);
        CHECK(node.counted() == Counted{{"SMC_ANSWER_REFUSED", 1}});
        CHECK(node.state(family) == SMC_REQUEST_LET_GO);
    }
    CHECK(node.told.empty());
}

TEST_CASE("answer__an_agent_that_takes_no_connections_is_told_and_sends_the_syn_itself") {
    enter_a_namespace();
    Node node;
    node.programs->beat(false, false);
    const Family family{false};
    const Bytes yes = answer(family, kSyn | kAck, kServersIsn, kIsn + 1, kSmcOption);
    node.ask(family, SMC_REQUEST_ASKED);
    node.arrive(yes);
    check_is_rst(node, family, yes);
    CHECK(node.counted() == Counted{{"SMC_ANSWER_SMC", 1}});
    CHECK(node.state(family) == SMC_REQUEST_HELD);
    REQUIRE(node.told.size() == 1);
    CHECK(node.told[0].type == SMC_EVENT_REQUEST);
}

TEST_CASE("answer__to_another_syn_is_tcps_own_business") {
    enter_a_namespace();
    Node node;
    for (const Family family : {Family{false}, Family{true}}) {
        const Bytes late = answer(family, kSyn | kAck, kServersIsn, kIsn + 2, kSmcOption);
        node.ask(family, SMC_REQUEST_ASKED);
        node.arrive(late);
        CHECK(node.verdict == kGoesOn);
        CHECK(node.out == late);
        CHECK(node.state(family) == SMC_REQUEST_ASKED);
        // An answer to a client that never asked, and has no socket, passes, too.
        node.requests().erase(tuple_of(family.client_end(), family.server_end(), 0));
        node.arrive(late);
        CHECK(node.verdict == kGoesOn);
        CHECK(node.out == late);
    }
    CHECK(node.counted().empty());
}

TEST_CASE("sweep__forgets_what_is_older_than_its_state_allows") {
    enter_a_namespace();
    Node node;
    constexpr std::uint64_t kSecond = 1'000'000'000, kCgroup = 77;
    const std::uint64_t now = os::monotonic_ns();
    struct Case {
        smc_request_state state;
        std::uint64_t life;  // in seconds
    };
    const Case cases[] = {{SMC_REQUEST_ASKED, 130},  {SMC_REQUEST_HELD, 130}, {SMC_REQUEST_LET_GO, 130},
                          {SMC_REQUEST_ANSWERED, 3}, {SMC_REQUEST_CLC, 30},   {SMC_REQUEST_LEG, 30}};
    const auto key = [](std::size_t number, bool old) {
        smc_tuple tuple{};
        tuple.local_port = static_cast<__u16>(number);
        tuple.remote_port = old ? 1 : 2;
        return tuple;
    };
    std::size_t number = 0;
    for (const Case& one : cases) {
        for (const bool old : {true, false}) {
            smc_request request{};
            request.state = one.state;
            request.cgroup = kCgroup;
            request.since_ns = old ? now - (one.life + 1) * kSecond : now + kSecond;
            REQUIRE(node.requests().put(key(number, old), request));
        }
        number++;
    }
    const bpf::Map<std::uint64_t, smc_req_counts> asking(node.programs->map_fd("smc_req_counts"));
    REQUIRE(asking.put(kCgroup, {100, 0, 0}));
    REQUIRE(asking.put(kCgroup + 1, {1, 0, 0}));
    const bpf::Map<smc_tuple, smc_inbound> inbound(node.programs->map_fd("smc_inbound"));
    for (const bool cookie : {false, true}) {
        smc_inbound entry{};
        entry.syncookie = cookie ? 1 : 0;
        entry.since_ns = now - 60 * kSecond;
        REQUIRE(inbound.put(key(cookie ? 1 : 0, true), entry));
    }
    node.programs->sweep();
    for (std::size_t i = 0; i < std::size(cases); i++) {
        CAPTURE(cases[i].state);
        CHECK_FALSE(node.requests().get(key(i, true)));
        CHECK(node.requests().get(key(i, false)));
    }
    REQUIRE(asking.get(kCgroup));
    CHECK(asking.get(kCgroup)->now == static_cast<__s32>(std::size(cases)));
    CHECK_FALSE(asking.get(kCgroup + 1));
    CHECK_FALSE(inbound.get(key(0, true)));
    CHECK(inbound.get(key(1, true)));
}
