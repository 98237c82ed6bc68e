// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Frames that are made by hand, and a dissector that reads them.
#pragma once

#include <pcap/dlt.h>

#include <catch2/catch.hpp>

#include "ctl/capture/dissector.h"
#include "ctl/capture/summary.h"
#include "messages.h"
#include "smc/wire/tcp_option.h"

namespace smc::test::captures {

using namespace smc::capture;

using Raw = std::vector<std::uint8_t>;

inline void put(Raw& to, std::uint64_t value, std::size_t bytes) {
    to.resize(to.size() + bytes);
    wire::store_be(&to[to.size() - bytes], bytes, value);
}

inline Raw operator+(Raw a, const Raw& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

inline Raw ipv4(std::uint8_t from, std::uint8_t to, std::uint8_t protocol, const Raw& payload,
                std::uint16_t fragment = 0) {
    Raw ip{0x45, 0};
    put(ip, 20 + payload.size(), 2);
    put(ip, 0, 2);
    put(ip, fragment, 2);
    put(ip, std::uint64_t{64} << 8 | protocol, 2);
    put(ip, 0, 2);
    put(ip, 0x0a000000 | from, 4);
    put(ip, 0x0a000000 | to, 4);
    return ip + payload;
}

inline Raw tcp_segment(std::uint16_t from, std::uint16_t to, std::uint32_t sequence, std::uint8_t flags,
                       const Raw& payload, const Raw& options = {}) {
    Raw tcp;
    put(tcp, from, 2);
    put(tcp, to, 2);
    put(tcp, sequence, 4);
    put(tcp, 0, 4);
    put(tcp, (20 + options.size()) / 4 << 4, 1);
    put(tcp, flags, 1);
    put(tcp, 0, 6);
    return tcp + options + payload;
}

inline Raw send(Qpn qpn, std::uint32_t psn, const Raw& payload, std::uint8_t opcode = 4) {
    Raw udp;
    put(udp, 50000, 2);
    put(udp, kRoceV2Port, 2);
    put(udp, 8 + 12 + payload.size() + 4, 2);
    put(udp, 0, 2);
    put(udp, opcode, 1);
    put(udp, 0, 1);
    put(udp, 0xffff, 2);
    put(udp, static_cast<std::uint32_t>(qpn), 4);
    put(udp, psn, 4);
    return udp + payload + Raw(4);
}

inline const Raw kOption{254, 6, 0xe2, 0xd4, 0xc3, 0xd9, 1, 1};

// Host 1 is the client, host 2 the server.
struct Bench {
    std::vector<Event> events;  // CLC, LLC, CDC ...
    std::vector<Event> asked;   // ... and option 254 of TCP
    Dissector dissector{
        [this](const Event& event) { (event.message.layer == "TCP" ? asked : events).push_back(event); }};
    std::uint64_t frames = 0;

    void frame(const Raw& raw, int link_type = DLT_RAW) {
        dissector.add({++frames, static_cast<std::int64_t>(frames), link_type, raw});
    }
    void client(std::uint32_t sequence, const Raw& payload, std::uint8_t flags = kAck, const Raw& options = {}) {
        frame(ipv4(1, 2, 6, tcp_segment(1000, 80, sequence, flags, payload, options)));
    }
    void server(std::uint32_t sequence, const Raw& payload, std::uint8_t flags = kAck, const Raw& options = {}) {
        frame(ipv4(2, 1, 6, tcp_segment(80, 1000, sequence, flags, payload, options)));
    }
    void open() {
        client(0xfffffff0, {}, kSyn, kOption);
        server(500, {}, kSyn | kAck, kOption);
    }
    [[nodiscard]] std::string types() const {
        std::string out;
        for (const Event& e : events) {
            out += (out.empty() ? "" : ",") + (e.message.fault ? "fault" : e.message.type);
        }
        return out;
    }
    [[nodiscard]] std::string answer() const {
        const auto& group = history().link_group;
        return answered(history(), group ? &dissector.link_groups()[*group] : nullptr);
    }
    // SENDs to queue pair 2 at the server and 1 at the client.
    void to_server(std::uint32_t psn, const Raw& message) { frame(ipv4(1, 2, 17, send(Qpn{2}, psn, message))); }
    void to_client(std::uint32_t psn, const Raw& message) { frame(ipv4(2, 1, 17, send(Qpn{1}, psn, message))); }
    [[nodiscard]] const Connection& history() const { return dissector.connections().at(0); }
};

inline Raw proposal() {
    clc::Proposal p;
    p.v2_offer = clc::Offer::kBoth;
    p.v2.emplace().eids = {*Eid::parse("A"), *Eid::parse("B")};
    return bytes(encode(p));
}

inline clc::AcceptR half(clc::Type type, std::uint8_t host, std::uint32_t token, bool first = true) {
    clc::AcceptR a;
    a.type = type;
    a.first_contact = first;
    a.gid = RoceGid::from_ipv4({10, 0, 0, host});
    a.qpn = Qpn{host};
    a.alert_token = AlertToken{token};
    a.psn = Psn{0xfffffe};
    a.eid = *Eid::parse("B");
    if (first) {
        a.fce.emplace();
        a.gid_list = {a.gid};
    }
    return a;
}

// First contact, with tokens 11 at the client and 22 at the server.
inline void negotiate(Bench& bench, bool first = true) {
    bench.open();
    const Raw p = proposal();
    bench.client(0xfffffff1, p);
    const Raw accept = bytes(encode(half(clc::Type::kAccept, 2, 22, first)));
    bench.server(501, accept);
    bench.client(static_cast<std::uint32_t>(0xfffffff1 + p.size()),
                 bytes(encode(half(clc::Type::kConfirm, 1, 11, first))));
}

inline Raw cdc_to(std::uint32_t token, std::uint32_t count, std::uint16_t wrap = 0, std::uint8_t state = 0,
                  std::uint32_t consumed = 0) {
    cdc::Message m;
    m.token = AlertToken{token};
    m.producer = {wrap, count};
    m.consumer = {0, consumed};
    m.state = state;
    return bytes(encode(m));
}

}  // namespace smc::test::captures
