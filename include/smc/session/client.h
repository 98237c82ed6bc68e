// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The client's side of one connection, without I/O: from the moment that its server is known to speak SMC to the moment
// that its bytes move, or that TCP does without us. The CLC messages are ClientHandshake's; this is everything around
// them. The application waits in connect() meanwhile, with a SYN of its own that is kept back.
//
//   kConnecting   connected, option 254    -> kNegotiating
//                 connected, no option     -> on TCP
//                 failed                   -> on TCP, which will find out for itself
//                 in either case a server that was known is asked next time, and one that answered is not for some
//                                             seconds: something on the way lets its answer through, and not this
//   kNegotiating  memory at both ends, and -> kFinishing, with the Confirm still to be sent: from the Confirm on the
//                 no link is to be made       server's application has a connection, and somebody must be there to
//                                             use it
//                 first contact of SMC-R   -> kFinishing, when the link is confirmed
//                 Decline                  -> kFinishing: the connection that CLC was spoken on goes on (RFC 7609
//                                             section 3.5); where the server has an agent, kLeaving
//                 the link failed          -> Decline up to our CONFIRM LINK (C.2), then as terminated
//                 terminated               -> on TCP
//                 in either case the server is not asked for a while; for some seconds only if it has an agent that
//                                             closed, or was late
//   kFinishing    the leg is there         -> Confirm, if it is still to be sent; runs, on SMC or on TCP through the
//                                             agent; if it cannot be sent, the application is reset
//                 it is not                -> on TCP, unless the application has gone
//   kLeaving      the server has closed    -> on TCP; before, it may still hold the tuple of the application
//   kDone
//   the budget is used up, at any time     -> on TCP; as above
//
// Invariant:
//   S1  Exactly one of Run, RunOnTcp, LeaveToTcp and Refuse is ever returned, and nothing after it.
#pragma once

#include "smc/clc/client_handshake.h"
#include "smc/group/smcd_groups.h"
#include "smc/session/actions.h"

namespace smc::session {

// What the SYN-ACK said about option 254.
enum class PeerOption : std::uint8_t {
    kAbsent,
    kPresent,
    kAgent,   // present, and the server has an agent
    kEchoed,  // the peer repeats whatever it is sent
};

class Client {
 public:
    static constexpr bool kServer = false;
    enum class State : std::uint8_t { kConnecting, kNegotiating, kFinishing, kLeaving, kDone };

    // Both references outlive the session.
    Client(const clc::LocalNode& node, group::SmcdGroups& smcd_groups) : node_(node), smcd_groups_(smcd_groups) {}

    // The whole attempt may take until `deadline`. `answered`: the server has said yes just now; otherwise it is known
    // to have done so before.
    [[nodiscard]] Actions start(TimePoint deadline, bool answered);
    // `means`: what could be used for this TCP connection.
    [[nodiscard]] Actions connected(PeerOption option, clc::Means means, TimePoint now);
    // errno of connect().
    [[nodiscard]] Actions connect_failed(int error);

    // The CLC socket.
    [[nodiscard]] Actions clc_message(wire::Bytes message, TimePoint now);
    [[nodiscard]] Actions clc_fault(const Fault& fault, TimePoint now);
    [[nodiscard]] Actions clc_closed(TimePoint now);
    // The last SendClc could not be written, and nothing behind it was carried out.
    [[nodiscard]] Actions clc_not_sent(TimePoint now);

    [[nodiscard]] Actions dmb_attached(TimePoint now);
    [[nodiscard]] Actions dmb_not_attached(Reason reason, std::string detail, TimePoint now);
    [[nodiscard]] Actions dmb_registered(const clc::LocalDmb& own, TimePoint now);
    [[nodiscard]] Actions dmb_refused(Reason reason, std::string detail, TimePoint now);

    [[nodiscard]] Actions joined(const clc::LocalRmbe& own, TimePoint now);
    [[nodiscard]] Actions join_refused(group::Refusal refusal, std::string detail, TimePoint now);
    [[nodiscard]] Actions link_ready(TimePoint now);
    // `may_decline`: the server still waits for CONFIRM LINK, or for a Decline.
    [[nodiscard]] Actions link_failed(Reason reason, std::string detail, bool may_decline, TimePoint now);

    [[nodiscard]] Actions leg_connected(TimePoint now);
    // `application_gone`: nobody waits any more.
    [[nodiscard]] Actions leg_failed(bool application_gone, std::string detail);

    [[nodiscard]] Actions tick(TimePoint now);
    [[nodiscard]] TimePoint next_deadline() const;
    [[nodiscard]] State state() const { return state_; }
    [[nodiscard]] bool peer_has_agent() const { return peer_agent_; }
    // It is the peer's turn: read a CLC message.
    [[nodiscard]] bool listens() const;

 private:
    Actions translate(clc::Actions from);
    Actions negotiated(clc::Outcome outcome);
    Actions finish_connect(Actions actions);
    Actions confirm(TimePoint now);
    Actions run();
    Actions run_on_tcp(Actions actions);
    Actions let_go(Reason reason, std::string detail, Actions actions = {});
    Actions let_go_and_learn(Reason reason, std::string detail, Actions actions = {});
    Actions give_back();
    [[nodiscard]] RememberServer lesson(Reason reason) const;
    [[nodiscard]] RememberServer lesson_of_connecting(Reason reason) const;

    const clc::LocalNode& node_;
    group::SmcdGroups& smcd_groups_;
    State state_ = State::kConnecting;
    std::optional<clc::ClientHandshake> handshake_;
    clc::SmcdPeer smcd_;  // whose DMB is being attached
    std::variant<std::monostate, clc::LocalDmb, clc::LocalRmbe>
        half_;  // what the Confirm, which waits for the leg, says
    bool answered_ = false;
    bool application_ = false;  // its connect() has returned
    bool peer_agent_ = false;
    clc::Outcome outcome_{.kind = clc::Outcome::Kind::kFallBack};
    bool clc_closed_ = false;
    TimePoint deadline_ = kNever;
};

}  // namespace smc::session
