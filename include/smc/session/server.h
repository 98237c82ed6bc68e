// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The server's side of one connection, without I/O: its SYN carried option 254, and the agent accepted it in place of
// the application. ServerHandshake handles the CLC messages; this class handles everything around them.
//
//   kNegotiating  the application is connected before the Accept is sent
//                 SMC             -> runs; kAwaitingClient on first contact of SMC-R, if the client's agent connects
//                                    its application only after the link is confirmed
//                 Decline         -> runs on TCP, once the application is connected; if the client has an agent, it is
//                                    left to TCP: the application's own SYN comes instead
//                 the application cannot be connected -> refused; if the client has an agent, Decline
//                 terminated      -> refused; the application never hears of the connection
//   kAwaitingClient  the client's agent announced the application -> runs
//                    it has gone, or says nothing -> refused: the application never hears of the connection
//   kConnecting   the connection falls back, and the application is being connected
//   kDone
//
// The client may not have seen the option in the SYN-ACK, if something on the way removes it from SYN-ACKs only. Then
// its application took the agent's SYN-ACK for the server's: the bytes are the application's, and the connection runs
// on TCP.
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
    // Facts about the client.
    struct Peer {
        bool has_agent = false;  // on fallback the client does without this connection
        bool announces = false;  // on first contact of SMC-R its agent tells when its application is connected
        // Why it has not seen the option in the SYN-ACK, and sends no CLC; kNone: it has, as far as is known.
        Reason no_option = Reason::kNone;
    };

    // `means`: what this node may use for this TCP connection. Both references outlive the session.
    Server(const clc::LocalNode& node, group::SmcdGroups& smcd_groups, clc::Means means, Peer peer, TimePoint now)
        : node_(node), smcd_groups_(smcd_groups), peer_(peer), handshake_(node, std::move(means), now) {}

    // To be called once, before anything else.
    [[nodiscard]] Actions begin(TimePoint now);
    // Bytes have come that are not a whole message yet.
    void clc_began() { clc_began_ = true; }
    [[nodiscard]] Actions clc_message(wire::Bytes message, TimePoint now);
    [[nodiscard]] Actions clc_fault(const Fault& fault, TimePoint now);
    // `in_order`: by a FIN, not by a reset.
    [[nodiscard]] Actions clc_closed(TimePoint now, bool in_order = false);
    // The last SendClc could not be written, and the actions after it were not carried out.
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
    // The client's agent has sent its first message. `aborts`: it gives the connection up.
    [[nodiscard]] Actions client_announced(bool aborts);

    [[nodiscard]] Actions application_connected(TimePoint now);
    [[nodiscard]] Actions application_refused(std::string detail, TimePoint now);

    [[nodiscard]] Actions tick(TimePoint now);
    [[nodiscard]] TimePoint next_deadline() const;
    [[nodiscard]] State state() const { return state_; }
    [[nodiscard]] bool peer_has_agent() const { return peer_.has_agent; }
    // True if the peer's next CLC message is to be read.
    [[nodiscard]] bool listens() const;

 private:
    Actions translate(clc::Actions from, TimePoint now);
    Actions negotiated(clc::Outcome outcome, TimePoint now);
    Actions refuse(Reason reason, std::string detail, Actions actions);
    Actions join_application(Reason reason, std::string detail, TimePoint now);
    [[nodiscard]] bool may_have_lost_answer() const;
    [[nodiscard]] bool joins_application() const;
    Actions dmb_ready(TimePoint now);

    const clc::LocalNode& node_;
    group::SmcdGroups& smcd_groups_;
    Peer peer_;
    clc::ServerHandshake handshake_;
    State state_ = State::kNegotiating;
    std::optional<clc::LocalDmb> dmb_;   // the registered DMB, while the application is being connected
    std::optional<clc::SmcrPeer> smcr_;  // the peer to join a link group with, likewise
    bool application_ = false;           // the application is connected
    bool clc_began_ = false;
    bool clc_closed_ = false;
    bool was_late_ = false;  // this side was late itself, and has already looked once more
    clc::Outcome outcome_;
    TimePoint deadline_ = kNever;  // of kConnecting and kAwaitingClient
    TimePoint silence_until_{};    // until when a silent client is waited for after this side was late
};

}  // namespace smc::session
