// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Both sides of a link group's LLC, and the messages that they exchange.
#pragma once

#include <catch2/catch.hpp>

#include "actions.h"
#include "smc/llc/group_llc.h"

namespace smc::test::llc_pair {

using namespace smc::llc;
using namespace std::chrono_literals;

inline const TimePoint kStart = TimePoint{} + std::chrono::hours(1);  // not the clock's epoch

inline QpEnd end(const char* gid, std::uint32_t qpn) {
    return {*RoceGid::parse(gid), Mac{{2, 0, 0, 0, 0, static_cast<std::uint8_t>(qpn)}}, Qpn{qpn}};
}

struct Terms {
    GroupTerms group;
    LinkTerms link;
};

inline Terms terms(bool server, std::uint8_t version = 2, std::uint8_t max_links = 1) {
    Terms t;
    t.group.server = server;
    t.group.version = version;
    t.group.max_links = max_links;
    t.group.negotiated = version >= 2 && max_links == 1;  // else it is release 0
    t.group.reply_timeout = 1000ms;
    t.group.test_interval = 10000ms;
    t.link.own = end(server ? "10.0.0.1" : "10.0.0.2", server ? 11 : 22);
    t.link.peer = end(server ? "10.0.0.2" : "10.0.0.1", server ? 22 : 11);
    t.link.own_id = LinkId{server ? 0x5e : 0xc1U};
    return t;
}

// The ends of a second link.
inline LinkTerms second(bool server) {
    LinkTerms t;
    t.number = 2;
    t.own = end(server ? "10.0.1.1" : "10.0.1.2", server ? 13 : 24);
    t.peer = end(server ? "10.0.1.2" : "10.0.1.1", server ? 24 : 13);
    t.own_id = LinkId{server ? 0x5eU : 0xc2U};
    return t;
}

// One side. Messages come over the first link, unless another one is named.
struct Side : GroupLlc {
    explicit Side(const Terms& t) : GroupLlc(t.group), link(t.link) {}

    Actions start(TimePoint now) { return GroupLlc::start(link, now); }
    Actions message(Bytes bytes, TimePoint now, std::uint8_t over = kFirstLink) {
        return GroupLlc::message(over, bytes, now);
    }
    // Confirms an RMB that is registered for the first link; its RmbId is its RKey.
    Actions confirm_rkey(RKey rkey, VirtualAddress address, TimePoint now) {
        rmb_registered(RmbId{static_cast<std::uint32_t>(rkey)}, kFirstLink, {rkey, address});
        return GroupLlc::confirm_rkey(RmbId{static_cast<std::uint32_t>(rkey)}, now);
    }
    Actions delete_rkey(RKey rkey, TimePoint now) {
        rmb_registered(RmbId{static_cast<std::uint32_t>(rkey)}, kFirstLink, {rkey, {}});
        return GroupLlc::delete_rkey(RmbId{static_cast<std::uint32_t>(rkey)}, now);
    }
    bool note_rmb(RKey rkey) { return GroupLlc::note_rmb(kFirstLink, {rkey, {}}) != nullptr; }
    [[nodiscard]] bool knows(RKey rkey) const { return find_rmb(kFirstLink, rkey) != nullptr; }
    // Also checks that nothing happens before next_deadline().
    Actions tick(TimePoint now, std::uint64_t messages) {
        heard(kFirstLink, messages, now);
        const bool early = now < next_deadline();
        Actions actions = GroupLlc::tick(now);
        CHECK((!early || actions.empty()));
        return actions;
    }

    LinkTerms link;
};

template <class M>
M sent(const Actions& actions) {
    const auto* send = find<Send>(actions);
    REQUIRE(send != nullptr);
    return std::get<M>(std::get<AnyMessage>(decode(send->message.view())));
}

inline Bytes bytes(const Actions& actions) {
    const auto* send = find<Send>(actions);
    REQUIRE(send != nullptr);
    return send->message.view();
}

template <class M>
M message(std::uint8_t version = 2) {
    M m;
    m.version = version;
    return m;
}

inline Reason over(const Actions& actions) {
    const auto* end = find<Over>(actions);
    REQUIRE(end != nullptr);
    return end->reason;
}

// A server and a client whose link is confirmed.
struct Pair {
    Side server, client;

    explicit Pair(const Terms& s = terms(true), const Terms& c = terms(false)) : server(s), client(c) {
        const auto request = server.start(kStart);
        CHECK(client.start(kStart).empty());
        const auto reply = client.message(bytes(request), kStart);
        REQUIRE(find<Confirmed>(reply) != nullptr);
        REQUIRE(find<Confirmed>(server.message(bytes(reply), kStart)) != nullptr);
    }
};

// A server and a client whose first contact has made two links.
struct Doubled {
    Side server, client;

    explicit Doubled(std::uint8_t version = 2) : server(terms(true, version, 2)), client(terms(false, version, 2)) {
        const auto request = server.start(kStart);
        (void)client.start(kStart);
        REQUIRE(find<WantLink>(server.message(bytes(client.message(bytes(request), kStart)), kStart)) != nullptr);
        own_rmb(server, 10);
        own_rmb(client, 20);
        (void)server.note_rmb(RKey{20});
        (void)client.note_rmb(RKey{10});
    }
    // An RMB with RKey n on the first link, and n + 100 on the second.
    static void own_rmb(Side& side, std::uint32_t n) {
        side.rmb_registered(RmbId{n}, 1, {RKey{n}, VirtualAddress{n}});
        side.rmb_registered(RmbId{n}, 2, {RKey{n + 100}, VirtualAddress{n + 100}});
    }
    // Up to the server's request to connect its queue pair.
    Actions agree() {
        const auto offer = server.offer_link(second(true), {}, kStart);
        REQUIRE(find<LinkOffered>(client.message(bytes(offer), kStart)) != nullptr);
        auto to_server = client.accept_link(second(false), kStart);
        for (;;) {
            auto to_client = server.message(bytes(to_server), kStart);
            if (find<LinkAccepted>(to_client) != nullptr) {
                return to_client;
            }
            to_server = client.message(bytes(to_client), kStart);
        }
    }
    void double_up() {
        agree();
        const auto confirm = server.link_connected(2, kStart);
        REQUIRE(find<Send>(confirm)->link == 2);
        const auto reply = client.message(bytes(confirm), kStart, 2);
        REQUIRE((find<LinkUp>(reply)->number == 2 && find<Send>(reply)->link == 2));
        REQUIRE(find<LinkUp>(server.message(bytes(reply), kStart, 2)) != nullptr);
        REQUIRE((server.up().size() == 2 && client.up().size() == 2));
    }
};

}  // namespace smc::test::llc_pair
