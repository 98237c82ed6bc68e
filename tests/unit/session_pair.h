// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A client and a server of the session layer, and the messages that they exchange.
#pragma once

#include <catch2/catch.hpp>
#include <cerrno>
#include <functional>

#include "actions.h"
#include "smc/session/client.h"
#include "smc/session/server.h"

namespace smc::test::sessions {

using namespace smc::session;
using namespace std::chrono_literals;
using Kind = clc::Outcome::Kind;

inline const TimePoint kStart{};
inline constexpr auto kBudget = 20s;  // longer than any step
inline const std::vector<std::uint8_t> kRubbish(100, 'x');
inline const Fault kFault{"", 0, 0, ""};

inline clc::LocalNode node(std::uint8_t id, std::uint16_t chid, const char* eid) {
    clc::LocalNode n;
    n.ism = {{{}, Chid{chid}}};
    n.ism[0].gid.bytes.fill(id);
    n.ueids = {*Eid::parse(eid)};
    n.step_timeout = 1000ms;
    return n;
}
inline const clc::LocalNode kClient = node(0x11, 0xff00, "COMMON");
inline const clc::LocalNode kSmcdServer = node(0x22, 0xff00, "COMMON");
inline const clc::LocalNode kSmcrServer = node(0x22, 0xff01, "COMMON");  // no fabric in common
inline const clc::LocalNode kStranger = node(0x22, 0xff00, "OTHER");

inline clc::RoceOffer roce(const char* own) {
    clc::RoceOffer o;
    o.gids = {*RoceGid::parse(own)};
    return o;
}

inline clc::LocalRmbe rmbe(const char* gid) {
    clc::LocalRmbe r;
    r.link.gid = *RoceGid::parse(gid);
    r.link.qpn = Qpn{17};
    r.first_contact = true;
    return r;
}

// True if the actions are exactly of these kinds, in this order.
template <class... Kinds>
bool are(const Actions& actions) {
    std::size_t i = 0;
    return actions.size() == sizeof...(Kinds) && (std::holds_alternative<Kinds>(actions[i++]) && ...);
}

inline clc::Message sent(const Actions& actions) {
    const auto* send = find<SendClc>(actions);
    REQUIRE(send != nullptr);
    return send->message;
}

inline Reason declined(const Actions& actions) {
    return std::get<clc::Decline>(clc::decode_decline(sent(actions).view())).reason;
}

template <class T>
Reason reason(const Actions& actions) {
    const auto* with = find<T>(actions);
    REQUIRE(with != nullptr);
    return with->reason;
}

// The reason why the connection runs on TCP; nothing: it does not.
inline std::optional<Reason> on_tcp(const Actions& actions) {
    return are<RunOnTcp>(actions) ? std::optional(find<RunOnTcp>(actions)->outcome.reason) : std::nullopt;
}

// The reason why a client's application is left to TCP, after the actions `Before`; nothing: it is not.
template <class... Before>
std::optional<Reason> let_go(const Actions& actions) {
    return are<Before..., ResetClc, LeaveToTcp>(actions) ? std::optional(find<LeaveToTcp>(actions)->outcome.reason)
                                                         : std::nullopt;
}

inline RememberServer::As learnt(const Actions& actions) {
    const auto* found = find<RememberServer>(actions);
    REQUIRE(found != nullptr);
    return found->as;
}

// A client that has sent its Proposal, and a server that has just accepted the CLC socket.
struct Pair {
    group::SmcdGroups client_groups, server_groups;
    Client client{kClient, client_groups};
    Server server;
    clc::Message proposal, accept, confirm{};

    // `native`: each side takes its peer for one without an agent, which falls back on the same TCP connection.
    explicit Pair(const clc::LocalNode& server_node = kSmcdServer, bool native = true)
        : server(server_node, server_groups, {true, roce("10.0.0.2")}, {!native, !native}, kStart) {
        REQUIRE(are<Connect>(client.start(kStart + kBudget, true)));
        const auto option = native ? PeerOption::kPresent : PeerOption::kAgent;
        proposal = sent(client.connected(option, {true, roce("10.0.0.1")}, kStart));
    }
    // Up to the server's Accept. The application is connected before it.
    void accept_smcd() {
        CHECK(find<RegisterDmb>(server.clc_message(proposal.view(), kStart))->peer == kClient.ism[0].gid);
        REQUIRE(are<ConnectApplication>(server.dmb_registered({DmbToken{5}, BufferSize{4}}, kStart)));
        accept = sent(server.application_connected(kStart));
    }
    // Up to the client's own DMB; next is its leg, or a Decline.
    Actions prepare_smcd() {
        CHECK(find<AttachDmb>(client.clc_message(accept.view(), kStart))->peer.token == DmbToken{5});
        CHECK(find<RegisterDmb>(client.dmb_attached(kStart))->peer == kSmcdServer.ism[0].gid);
        return client.dmb_registered({DmbToken{6}, BufferSize{3}}, kStart);
    }
    // Up to the moment before the client's connect() ends.
    void connect_by_smcd() {
        accept_smcd();
        REQUIRE(are<FinishConnect>(prepare_smcd()));
    }
    // Up to the client's Confirm; its connect() has ended.
    Actions agree_on_smcd() {
        connect_by_smcd();
        auto confirmed = client.leg_connected(kStart);
        confirm = sent(confirmed);
        return confirmed;
    }
    // SMC-R: until both ends wait for the link.
    void agree_on_smcr() {
        REQUIRE(are<ConnectApplication>(server.clc_message(proposal.view(), kStart)));
        const auto join = server.application_connected(kStart);
        REQUIRE(are<JoinGroup>(join));
        CHECK(find<JoinGroup>(join)->deadline < server.next_deadline());  // a Decline must still reach the client
        accept = sent(server.joined(rmbe("10.0.0.2"), kStart));
        CHECK(find<JoinGroup>(client.clc_message(accept.view(), kStart))->peer.link.qpn == Qpn{17});
        const auto confirmed = client.joined(rmbe("10.0.0.1"), kStart);
        REQUIRE(are<SendClc, AwaitLink>(confirmed));
        REQUIRE(are<AwaitLink>(server.clc_message(sent(confirmed).view(), kStart)));
    }
};

// The client's actions after the Accept of a server with which it has an SMC-R link group already.
inline Actions prepare_smcr_again(Pair& p) {
    REQUIRE(are<ConnectApplication>(p.server.clc_message(p.proposal.view(), kStart)));
    REQUIRE(are<JoinGroup>(p.server.application_connected(kStart)));
    auto own = rmbe("10.0.0.2");
    own.first_contact = false;
    REQUIRE(are<JoinGroup>(p.client.clc_message(sent(p.server.joined(own, kStart)).view(), kStart)));
    own = rmbe("10.0.0.1");
    own.first_contact = false;
    return p.client.joined(own, kStart);
}

// True if no event has any effect on it.
template <class Side>
bool is_over(Side& side, const clc::Message& message) {
    const bool quiet = side.clc_message(message.view(), kStart).empty() && side.clc_fault(kFault, kStart).empty() &&
                       side.clc_closed(kStart).empty() && side.dmb_registered({}, kStart).empty() &&
                       side.dmb_attached(kStart).empty() && side.joined(rmbe("10.0.0.1"), kStart).empty() &&
                       side.link_ready(kStart).empty() &&
                       side.link_failed(Reason::kLinkDown, "", true, kStart).empty() &&
                       side.tick(kStart + 1h).empty() && side.next_deadline() == kNever && !side.listens();
    if constexpr (Side::kServer) {
        return quiet && side.application_connected(kStart).empty() && side.application_refused("", kStart).empty();
    } else {
        return quiet && side.connected(PeerOption::kPresent, {}, kStart).empty() &&
               side.connect_failed(ECONNRESET).empty() && side.leg_connected(kStart).empty() &&
               side.leg_failed(AppState::kSynSent, "").empty() && side.leg_failed(AppState::kGone, "").empty() &&
               side.leg_late(AppState::kSynRecv, "", kStart).empty();
    }
}

}  // namespace smc::test::sessions
