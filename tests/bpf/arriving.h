// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Packets that arrive at a node whose agent serves its network namespace.
#pragma once

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <sched.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cstring>

#include "agent/steer/addresses.h"
#include "bpf/loaded.h"
#include "os/clock.h"
#include "os/rtnetlink.h"

namespace smc::test::arriving {

// TC_ACT_UNSPEC, TC_ACT_SHOT, TC_ACT_REDIRECT
constexpr __u32 kGoesOn = static_cast<__u32>(-1), kDropped = 2, kRedirected = 7;
constexpr std::uint8_t kFin = 1, kSyn = 2, kRst = 4, kAck = 16;
constexpr std::uint32_t kIsn = 1000, kServersIsn = 5000;

using Bytes = std::vector<std::uint8_t>;

inline const Bytes kSmcOption{254, 6, 0xe2, 0xd4, 0xc3, 0xd9, 1, 1};

inline void put16(Bytes& to, std::size_t at, unsigned value) {
    to[at] = static_cast<std::uint8_t>(value >> 8);
    to[at + 1] = static_cast<std::uint8_t>(value);
}
inline void put32(Bytes& to, std::size_t at, std::uint32_t value) {
    put16(to, at, value >> 16);
    put16(to, at + 2, value & 0xffff);
}
inline unsigned get16(const Bytes& from, std::size_t at) {
    return static_cast<unsigned>(from[at] << 8 | from[at + 1]);
}
inline std::uint32_t get32(const Bytes& from, std::size_t at) {
    return get16(from, at) << 16 | get16(from, at + 2);
}

// The ones' complement sum of 16-bit words; 0xffff if the bytes include a right checksum.
inline unsigned sum_of(const Bytes& bytes, std::size_t at, std::size_t length, std::uint32_t sum = 0) {
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
inline Bytes answer(const Family& family, std::uint8_t flags, std::uint32_t seq, std::uint32_t ack,
                    const Bytes& options) {
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
    void ask(const Family& family, smc_request_state state, std::uint64_t asked_ns = 0) {
        smc_request request{};
        request.state = state;
        request.isn = htonl(kIsn);
        request.answer_isn = htonl(kServersIsn);
        request.netns = cookie;
        request.since_ns = os::monotonic_ns();
        request.asked_ns = asked_ns;
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
inline void enter_a_namespace() {
    REQUIRE(::unshare(CLONE_NEWNET) == 0);
    REQUIRE(::system("ip link set lo up") == 0);
}

}  // namespace smc::test::arriving
