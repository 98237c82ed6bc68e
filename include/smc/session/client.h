// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The client's side of one connection, without I/O: from the moment that its server is known to speak SMC until its
// bytes move, or until it is left to TCP. ClientHandshake handles the CLC messages; this class handles everything
// around them. The application waits in connect() meanwhile, and its own SYN is held.
//
//   kConnecting   connected, option 254    -> kNegotiating
//                 connected, no option     -> left to TCP
//                 failed                   -> left to TCP: the application's own SYN finds out for itself
//                 In the last two cases a server that was only remembered is asked next time, and one that has just
//                 answered is paused: something on the way lets its answer through, but not this connection.
//   kNegotiating  both ends have memory,   -> kFinishing, with the Confirm still to be sent: from the Confirm on the
//                 no new link is needed       server's application has a connection, so the client's application must
//                                             be there to use it
//                 first contact of SMC-R   -> kFinishing, when the link is confirmed
//                 Decline                  -> kFinishing: the TCP connection of the CLC socket goes on (RFC 7609
//                                             section 3.5); if the server has an agent, kLeaving
//                 the link failed          -> Decline, if the server may still wait for one (C.2); else as terminated
//                 terminated               -> left to TCP
//                 In the last three cases the server is not asked for a while, unless the two sides were out of sync.
//                 It is only paused, for some seconds, if it has an agent and closed, was late, or its application
//                 refused.
//   kFinishing    the leg is connected     -> Confirm, if it is still to be sent; runs, on SMC or on TCP through the
//                                             agent; if the Confirm cannot be sent, the application is reset
//                 the leg failed           -> left to TCP, unless the application has gone
//                 the leg is late          -> as if it had failed, unless the application has answered it: see
//                 leg_late()
//   kLeaving      the server has closed    -> left to TCP; before that it may still hold the tuple of the application
//   kDone
//   the budget is used up, at any time     -> left to TCP; the server is not asked for a while, as above
//
// Invariant:
//   S1  Exactly one of Run, RunOnTcp, LeaveToTcp and Refuse is ever returned, and nothing after it.
#pragma once

#include "smc/clc/client_handshake.h"
#include "smc/group/smcd_groups.h"
#include "smc/session/actions.h"

namespace smc::session {

// The state of the application's socket when the handshake of its leg goes wrong.
enum class AppState : std::uint8_t {
    kSynSent,  // the server may still answer it
    kSynRecv,  // it has answered the leg's SYN, and would ignore an answer of the server
    kGone,     // the application no longer waits in connect()
};

// Option 254 in the SYN-ACK.
enum class PeerOption : std::uint8_t {
    kAbsent,
    kPresent,
    kAgent,   // present, and the server has an agent
    kEchoed,  // the peer repeats whatever it is sent
    kTaken,   // the server was not asked: another program on this node kept the option out of the SYN
};

class Client {
 public:
    static constexpr bool kServer = false;
    enum class State : std::uint8_t { kConnecting, kNegotiating, kFinishing, kLeaving, kDone };

    // Both references outlive the session.
    Client(const clc::LocalNode& node, group::SmcdGroups& smcd_groups) : node_(node), smcd_groups_(smcd_groups) {}

    // `deadline`: of the whole attempt. `answered`: the server has just answered a SYN with option 254; otherwise it is
    // remembered to speak SMC.
    [[nodiscard]] Actions start(TimePoint deadline, bool answered);
    // `means`: what this node may use for this TCP connection.
    [[nodiscard]] Actions connected(PeerOption option, clc::Means means, TimePoint now);
    // `error`: errno of connect().
    [[nodiscard]] Actions connect_failed(int error);

    // Events of the CLC socket.
    [[nodiscard]] Actions clc_message(wire::Bytes message, TimePoint now);
    [[nodiscard]] Actions clc_fault(const Fault& fault, TimePoint now);
    [[nodiscard]] Actions clc_closed(TimePoint now);
    // The last SendClc could not be written, and the actions after it were not carried out.
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

    // `has_link`: the link group still has the link of this connection, if there is one.
    [[nodiscard]] Actions leg_connected(TimePoint now, bool has_link = true);
    // The leg's handshake should be over. If the application's answer was lost, TCP sends it again one second after its
    // SYN, and three seconds after: so long the leg may take, even beyond the budget. Otherwise this is leg_failed().
    [[nodiscard]] Actions leg_late(AppState app, std::string detail, TimePoint now);
    // kSynRecv: the application's connect() is ended, as it would wait for minutes and fail.
    [[nodiscard]] Actions leg_failed(AppState app, std::string detail);

    [[nodiscard]] Actions tick(TimePoint now);
    [[nodiscard]] TimePoint next_deadline() const;
    [[nodiscard]] State state() const { return state_; }
    [[nodiscard]] bool peer_has_agent() const { return peer_agent_; }
    [[nodiscard]] bool leg_was_late() const { return leg_was_late_; }
    // True if the peer's next CLC message is to be read.
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
    // The Decline in place of a Confirm that has waited for the leg.
    [[nodiscard]] std::optional<clc::Message> last_word(Reason reason);
    [[nodiscard]] RememberServer lesson(Reason reason) const;
    [[nodiscard]] RememberServer lesson_of_connecting(Reason reason) const;

    const clc::LocalNode& node_;
    group::SmcdGroups& smcd_groups_;
    State state_ = State::kConnecting;
    std::optional<clc::ClientHandshake> handshake_;
    clc::SmcdPeer smcd_;  // the server whose DMB is being attached
    std::variant<std::monostate, clc::LocalDmb, clc::LocalRmbe> held_confirm_;  // of the Confirm that waits for the leg
    bool answered_ = false;
    bool application_ = false;  // the application's connect() has returned
    bool peer_agent_ = false;
    clc::Outcome outcome_{.kind = clc::Outcome::Kind::kFallBack};
    bool clc_closed_ = false;
    bool leg_was_late_ = false;
    TimePoint deadline_ = kNever;
};

}  // namespace smc::session
