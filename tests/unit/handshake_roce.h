// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Both sides of a CLC handshake for SMC-R.
#pragma once

#include <catch2/catch.hpp>

#include "actions.h"
#include "smc/clc/client_handshake.h"
#include "smc/clc/server_handshake.h"

namespace smc::test::clc_smcr {

using namespace smc::clc;

inline const TimePoint kStart{};

inline LocalNode node(std::uint8_t id) {
    LocalNode n;
    n.peer_id = {1, id, 2, 0, 0, 0, 0, id};
    n.ism = {{{}, Chid{static_cast<std::uint16_t>(0xff00 + id)}}};  // no fabric in common
    n.ism[0].gid.bytes[15] = id;
    n.ueids = {*Eid::parse("COMMON"), *Eid::parse("OTHER")};
    n.host_name = "host";
    n.step_timeout = std::chrono::milliseconds(1000);
    return n;
}
inline const LocalNode kClient = node(1), kServer = node(2);

inline RoceOffer offer(const char* own, const char* peer) {
    RoceOffer o;
    o.gids = {*RoceGid::parse(own), *RoceGid::parse("10.9.9.9")};
    o.mac = Mac{{2, 0, 0, 0, 0, 1}};
    o.own_address = *RoceGid::parse(own);
    o.peer_address = *RoceGid::parse(peer);
    o.prefix_bits = 24;
    return o;
}
inline RoceOffer of_client() {
    return offer("10.0.0.1", "10.0.0.2");
}
inline RoceOffer of_server() {
    return offer("10.0.0.2", "10.0.0.1");
}

inline LocalRmbe rmbe(const char* gid, bool first_contact) {
    LocalRmbe r;
    r.link = {*RoceGid::parse(gid), Mac{{2, 0, 0, 0, 0, 1}}, Qpn{17}, Psn{99}, Mtu::k2048};
    r.rmbe = {RKey{0x1234}, VirtualAddress{0x7000}, 3, AlertToken{0xabcd}, BufferSize{4}};
    r.first_contact = first_contact;
    return r;
}

inline Bytes bytes(const Actions& actions) {
    const auto* send = find<Send>(actions);
    REQUIRE(send != nullptr);
    return send->message.view();
}

inline AcceptR smcr(const Actions& actions, Type type) {
    return std::get<AcceptR>(std::get<Acceptance>(decode_acceptance(bytes(actions), type)));
}

inline Decline decline(const Actions& actions) {
    return std::get<Decline>(decode_decline(bytes(actions)));
}

inline Message encoded(const AcceptR& a) {
    return encode(a);
}

// Both sides, up to the client's Confirm.
struct Agreed {
    ClientHandshake client;
    ServerHandshake server;
    Actions accept, confirm, awaited;

    explicit Agreed(bool first_contact, RoceOffer c = of_client(), RoceOffer s = of_server())
        : client(kClient, {true, c}), server(kServer, {true, s}, kStart) {
        const auto prepare = server.message(bytes(client.start(kStart)), kStart);
        REQUIRE(find<PrepareRmbe>(prepare) != nullptr);
        CHECK(server.rmbe_ready(rmbe("10.0.0.2", first_contact), kStart).empty());
        accept = server.application_ready(kStart);
        const auto follow = client.message(bytes(accept));
        REQUIRE(find<PrepareRmbe>(follow) != nullptr);
        const clc::SmcrPeer& peer = find<PrepareRmbe>(follow)->peer;
        CHECK((peer.first_contact == first_contact && peer.link.qpn == Qpn{17} && peer.rmbe.index == 3));
        confirm = client.rmbe_ready(rmbe("10.0.0.1", first_contact), kStart);
        CHECK(find<AwaitLink>(confirm) != nullptr);
    }
};

}  // namespace smc::test::clc_smcr
