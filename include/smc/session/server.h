// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The server's side of one connection, without I/O: its SYN carried option 254, and it was accepted in the
// application's stead. The CLC messages are ServerHandshake's; this is everything around them.
//
//   kNegotiating  the application is connected before anything is accepted
//                 SMC             -> runs; at the first contact of SMC-R, where the client's agent connects its
//                                    application behind the link, kAwaitingClient
//                 Decline         -> runs on TCP, once the application is connected; where the client has an agent,
//                                    left to TCP: the application's own SYN comes instead
//                 the application cannot be connected -> refused; where the client has an agent, Decline
//                 terminated      -> refused; an application that was not connected never hears of it
//   kAwaitingClient  its agent spoke -> runs
//                    it is gone, or does not -> refused: the application never hears of it
//   kConnecting   it falls back, and the application is being connected
//   The client may not have seen the option in the answer, because something on the way takes it out of answers only:
//   its application took the agent's for the server's. Then the bytes are the application's, and it runs on TCP.
//   kDone
//
// Invariant:
//   S1  Exactly one of Run, RunOnTcp, LeaveToTcp and Refuse is ever returned, and nothing after it.
#pragma once

#include "smc/clc/server_handshake.h"
#include "smc/group/smcd_groups.h"
#include "smc/session/actions.h"

namespace smc::session {

class Server {
 public:
    static constexpr bool kServer = true;
    enum class State : std::uint8_t { kNegotiating, kAwaitingClient, kConnecting, kDone };
    // Who is there.
    struct Peer {
        bool has_agent = false;    // the client does without this connection when it falls back
        bool speaks = false;       // at the first contact of SMC-R it says when its application is connected
        bool answer_lost = false;  // it has not seen the option, and CLC will not come
    };

    // `means`: what could be used for this TCP connection. Both references outlive the session.
    Server(const clc::LocalNode& node, group::SmcdGroups& smcd_groups, clc::Means means, Peer peer, TimePoint now)
        : node_(node), smcd_groups_(smcd_groups), peer_(peer), handshake_(node, std::move(means), now) {}

    // Once, before anything else.
    [[nodiscard]] Actions begin(TimePoint now);
    // A message, which is not whole yet.
    void clc_began() { clc_began_ = true; }
    [[nodiscard]] Actions clc_message(wire::Bytes message, TimePoint now);
    [[nodiscard]] Actions clc_fault(const Fault& fault, TimePoint now);
    // `in_order`: not by a reset.
    [[nodiscard]] Actions clc_closed(TimePoint now, bool in_order = false);
    // The last SendClc could not be written, and nothing behind it was carried out.
    [[nodiscard]] Actions clc_not_sent(TimePoint now);

    [[nodiscard]] Actions dmb_registered(const clc::LocalDmb& own, TimePoint now);
    [[nodiscard]] Actions dmb_refused(Reason reason, std::string detail, TimePoint now);
    [[nodiscard]] Actions dmb_attached(TimePoint now);
    [[nodiscard]] Actions dmb_not_attached(Reason reason, std::string detail, TimePoint now);

    [[nodiscard]] Actions joined(const clc::LocalRmbe& own, TimePoint now);
    [[nodiscard]] Actions join_refused(group::Refusal refusal, std::string detail, TimePoint now);
    [[nodiscard]] Actions link_ready(TimePoint now);
    // `may_decline`: the client still waits for a Decline.
    [[nodiscard]] Actions link_failed(Reason reason, std::string detail, bool may_decline, TimePoint now);
    // `aborts`: its agent says that nothing comes of the connection.
    [[nodiscard]] Actions client_spoke(bool aborts);

    [[nodiscard]] Actions application_connected(TimePoint now);
    [[nodiscard]] Actions application_refused(std::string detail, TimePoint now);

    [[nodiscard]] Actions tick(TimePoint now);
    [[nodiscard]] TimePoint next_deadline() const;
    [[nodiscard]] State state() const { return state_; }
    [[nodiscard]] bool peer_has_agent() const { return peer_.has_agent; }
    // It is the peer's turn: read a CLC message.
    [[nodiscard]] bool listens() const;

 private:
    Actions translate(clc::Actions from, TimePoint now);
    Actions negotiated(clc::Outcome outcome, TimePoint now);
    Actions refuse(Reason reason, std::string detail, Actions actions);
    Actions join_application(std::string detail, TimePoint now);
    [[nodiscard]] bool may_have_lost_answer() const;
    Actions dmb_ready(TimePoint now);

    const clc::LocalNode& node_;
    group::SmcdGroups& smcd_groups_;
    Peer peer_;
    clc::ServerHandshake handshake_;
    State state_ = State::kNegotiating;
    std::optional<clc::LocalDmb> dmb_;   // registered, while the application is being connected
    std::optional<clc::SmcrPeer> smcr_;  // to be joined with, likewise
    bool application_ = false;           // is connected
    bool clc_began_ = false;
    bool clc_closed_ = false;
    bool was_late_ = false;  // this side itself: it looks once more, and no more than that
    clc::Outcome outcome_;
    TimePoint deadline_ = kNever;  // of kConnecting and kAwaitingClient
    TimePoint silence_until_{};    // where this side was late for a client that says nothing
};

}  // namespace smc::session
