// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The programs with packets that arrive, and with entries that age: a packet in, a verdict and the bytes out, and the
// maps before and after. There are no sockets of applications, so requests and legs are tested in netns.*.
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <sched.h>
#include <sys/socket.h>

#include <cstring>

#include "bpf/loaded.h"
#include "os/clock.h"
#include "os/rtnetlink.h"

using namespace smc;

namespace {

// TC_ACT_UNSPEC, TC_ACT_SHOT, TC_ACT_REDIRECT
constexpr __u32 kGoesOn = static_cast<__u32>(-1), kDropped = 2, kRedirected = 7;
constexpr std::uint8_t kFin = 1, kSyn = 2, kRst = 4, kAck = 16;
constexpr std::uint32_t kIsn = 1000, kServersIsn = 5000;

using Bytes = std::vector<std::uint8_t>;

const Bytes kSmcOption{254, 6, 0xe2, 0xd4, 0xc3, 0xd9, 1, 1};

void put16(Bytes& to, std::size_t at, unsigned value) {
    to[at] = static_cast<std::uint8_t>(value >> 8);
    to[at + 1] = static_cast<std::uint8_t>(value);
}
void put32(Bytes& to, std::size_t at, std::uint32_t value) {
    put16(to, at, value >> 16);
    put16(to, at + 2, value & 0xffff);
}
unsigned get16(const Bytes& from, std::size_t at) {
    return static_cast<unsigned>(from[at] << 8 | from[at + 1]);
}
std::uint32_t get32(const Bytes& from, std::size_t at) {
    return get16(from, at) << 16 | get16(from, at + 2);
}

// The ones' complement sum of 16-bit words; 0xffff if the bytes include a right checksum.
unsigned sum_of(const Bytes& bytes, std::size_t at, std::size_t length, std::uint32_t sum = 0) {
    for (std::size_t i = 0; i < length; i += 2) {
        sum += static_cast<unsigned>(bytes[at + i] << 8 | (i + 1 < length ? bytes[at + i + 1] : 0));
    }
    while (sum >> 16 != 0) {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return sum;
}

struct Family {
    bool v6;
    [[nodiscard]] std::size_t tcp_at() const { return v6 ? 54U : 34U; }
    [[nodiscard]] const char* client() const { return v6 ? "fd00::1" : "10.0.0.1"; }
    [[nodiscard]] const char* server() const { return v6 ? "fd00::2" : "10.0.0.2"; }
    [[nodiscard]] Endpoint client_end() const { return *Endpoint::parse(v6 ? "[fd00::1]:40000" : "10.0.0.1:40000"); }
    [[nodiscard]] Endpoint server_end() const { return *Endpoint::parse(v6 ? "[fd00::2]:80" : "10.0.0.2:80"); }
    // The sum over the TCP header and the pseudo header.
    [[nodiscard]] unsigned tcp_sum(const Bytes& packet) const {
        const std::size_t addresses = v6 ? 22 : 26, size = v6 ? 32 : 8, length = packet.size() - tcp_at();
        const auto pseudo = sum_of(packet, addresses, size, static_cast<std::uint32_t>(6 + length));
        return sum_of(packet, tcp_at(), length, pseudo);
    }
};

// A packet from the server to the client, with its Ethernet header.
Bytes answer(const Family& family, std::uint8_t flags, std::uint32_t seq, std::uint32_t ack, const Bytes& options) {
    const std::size_t tcp_bytes = 20 + options.size(), at = family.tcp_at();
    Bytes packet(at + tcp_bytes);
    const std::uint8_t macs[12] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2};
    std::memcpy(packet.data(), macs, sizeof macs);
    put16(packet, 12, family.v6 ? 0x86dd : 0x0800);
    if (family.v6) {
        packet[14] = 0x60;
        put16(packet, 18, static_cast<unsigned>(tcp_bytes));
        packet[20] = 6;
        packet[21] = 57;
        ::inet_pton(AF_INET6, family.server(), &packet[22]);
        ::inet_pton(AF_INET6, family.client(), &packet[38]);
    } else {
        packet[14] = 0x45;
        put16(packet, 16, static_cast<unsigned>(20 + tcp_bytes));
        packet[22] = 57;
        packet[23] = 6;
        ::inet_pton(AF_INET, family.server(), &packet[26]);
        ::inet_pton(AF_INET, family.client(), &packet[30]);
        put16(packet, 24, ~sum_of(packet, 14, 20) & 0xffff);
    }
    put16(packet, at, 80);
    put16(packet, at + 2, 40000);
    put32(packet, at + 4, seq);
    put32(packet, at + 8, ack);
    packet[at + 12] = static_cast<std::uint8_t>(tcp_bytes / 4 << 4);
    packet[at + 13] = flags;
    std::memcpy(&packet[at + 20], options.data(), options.size());
    put16(packet, at + 16, ~family.tcp_sum(packet) & 0xffff);
    return packet;
}

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

// A node whose agent serves its namespace; packets arrive on lo.
struct Node : Loaded {
    Node() : Loaded(json::parse(R"({"default": "allow"})")) {
        const auto rtnetlink = Rtnetlink::open();
        REQUIRE(rtnetlink);
        cookie = rtnetlink->netns_cookie();
        REQUIRE(programs->netns.put(cookie, {0, 1, 1, 0, 0, 1}));
        REQUIRE(programs->devices.put({0, 1}, {14, 0, 0, 0, 0, 0}));
        REQUIRE(programs->subscribe([this](const smc_event& event) { told.push_back(event); }));
        for (const bool v6 : {false, true}) {
            UniqueFd& fd = listeners.emplace_back(::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
            REQUIRE(::listen(fd.get(), 1) == 0);
            REQUIRE(programs->clc_listeners.put(v6 ? 1 : 0, static_cast<std::uint64_t>(fd.get())));
        }
        programs->beat(true, false);
        tag = bpf::Map<std::uint32_t, smc_config>(programs->map_fd("smc_config")).get(0)->tag;
        counted();
    }
    // The decisions that were counted since the last call.
    std::map<std::string, std::uint64_t> counted() {
        std::map<std::string, std::uint64_t> fresh;
        for (int d = 0; d < SMC_DECISIONS; d++) {
            const auto decision = static_cast<smc_decision>(d);
            const std::uint64_t now = programs->counter(decision);
            if (now != before[d]) {
                fresh[bpf::Programs::decision_name(decision)] = now - std::exchange(before[d], now);
            }
        }
        return fresh;
    }
    void arrive(const Bytes& packet) {
        out.assign(packet.size() + 64, 0);
        bpf_test_run_opts options{};
        options.sz = sizeof options;
        options.data_in = packet.data();
        options.data_size_in = static_cast<__u32>(packet.size());
        options.data_out = out.data();
        options.data_size_out = static_cast<__u32>(out.size());
        REQUIRE(bpf_prog_test_run_opts(programs->program_fd("smc_ingress"), &options) == 0);
        out.resize(options.data_size_out);
        verdict = options.retval;
        programs->poll();
    }
    void ask(const Family& family, smc_request_state state) {
        smc_request request{};
        request.state = state;
        request.isn = htonl(kIsn);
        request.answer_isn = htonl(kServersIsn);
        request.netns = cookie;
        request.since_ns = os::monotonic_ns();
        REQUIRE(requests().put(tuple_of(family.client_end(), family.server_end(), 0), request));
    }
    [[nodiscard]] bpf::Map<smc_tuple, smc_request> requests() const {
        return bpf::Map<smc_tuple, smc_request>(programs->map_fd("smc_requests"));
    }
    [[nodiscard]] std::optional<smc_request_state> state(const Family& family) const {
        const auto request = requests().get(tuple_of(family.client_end(), family.server_end(), 0));
        return request ? std::optional(request->state) : std::nullopt;
    }

    std::uint64_t cookie = 0;
    std::uint32_t tag = 0;
    std::vector<UniqueFd> listeners;
    std::vector<smc_event> told;
    std::uint64_t before[SMC_DECISIONS] = {};
    Bytes out;
    __u32 verdict = 0;
};

using Counted = std::map<std::string, std::uint64_t>;

// Each test case enters a namespace of its own.
void enter_a_namespace() {
    REQUIRE(::unshare(CLONE_NEWNET) == 0);
    REQUIRE(::system("ip link set lo up") == 0);
}

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
            let_go();  // as the agent does
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
        }
        for (std::size_t length = family.tcp_at(); length < error.size(); length++) {  // broken ones
            node.arrive({error.begin(), error.begin() + static_cast<std::ptrdiff_t>(length)});
            CHECK(node.verdict == kGoesOn);
        }
    }
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
