// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The client's side of one connection, without I/O: from the moment that its application asks for it to the moment that
// its bytes move. The CLC messages are ClientHandshake's; this is everything around them.
//
//   kConnecting   connected, option 254    -> kNegotiating
//                 connected, no option     -> kFinishing, on TCP; the server is remembered
//                 reset by the server      -> kReconnecting
//                 failed                   -> the application gets that error
//   kNegotiating  SMC                      -> kFinishing
//                 Decline                  -> kFinishing, on TCP; the server is remembered
// terminated               -> kReconnecting (RFC 7609 C.5 and C.6 end that TCP connection; the application has
//                                             sent nothing yet, so it can have another one); the server is remembered
//   kReconnecting connected                -> kFinishing, on TCP
//                 failed                   -> the application gets that error
//   kFinishing    the leg is there         -> runs
//                 it is not                -> refused
//   kDone
//   the application gives up, at any time  -> refused
//
// Invariant:
//   S1  Exactly one of Run, RunOnTcp and Refuse is ever returned, and nothing after it.
#pragma once

#include "smc/clc/client_handshake.h"
#include "smc/group/smcd_groups.h"
#include "smc/session/actions.h"

namespace smc::session {

// What the SYN-ACK said about option 254.
enum class PeerOption : std::uint8_t {
    kAbsent,
    kPresent,
    kEchoed,  // the peer repeats whatever it is sent
};

class Client {
 public:
    static constexpr bool kServer = false;
    enum class State : std::uint8_t { kConnecting, kNegotiating, kReconnecting, kFinishing, kDone };

    // Both references outlive the session.
    Client(const clc::LocalNode& node, group::SmcdGroups& smcd_groups) : node_(node), smcd_groups_(smcd_groups) {}

    [[nodiscard]] Actions start();
    // `roce`: how SMC-R could be used for this TCP connection.
    [[nodiscard]] Actions connected(PeerOption option, std::optional<clc::RoceOffer> roce, TimePoint now);
    // errno of connect().
    [[nodiscard]] Actions connect_failed(int error);

    // The CLC socket.
    [[nodiscard]] Actions clc_message(wire::Bytes message, TimePoint now);
    [[nodiscard]] Actions clc_fault(const Fault& fault, TimePoint now);
    [[nodiscard]] Actions clc_closed(TimePoint now);
    // The last SendClc could not be written, and nothing behind it was carried out.
    [[nodiscard]] Actions clc_not_sent(TimePoint now);

    [[nodiscard]] Actions dmb_attached(TimePoint now);
    [[nodiscard]] Actions dmb_not_attached(std::string detail, TimePoint now);
    [[nodiscard]] Actions dmb_registered(const clc::LocalDmb& own, TimePoint now);
    [[nodiscard]] Actions dmb_refused(Reason reason, std::string detail, TimePoint now);

    [[nodiscard]] Actions joined(const clc::LocalRmbe& own, TimePoint now);
    [[nodiscard]] Actions join_refused(group::Refusal refusal, std::string detail, TimePoint now);
    [[nodiscard]] Actions link_ready(TimePoint now);
    // `before_confirm_link` makes a difference at the server only.
    [[nodiscard]] Actions link_failed(Reason reason, std::string detail, bool before_confirm_link, TimePoint now);

    [[nodiscard]] Actions leg_arrived();
    [[nodiscard]] Actions leg_refused(std::string detail);
    // Its connect() ended without us.
    [[nodiscard]] Actions application_gone();

    [[nodiscard]] Actions tick(TimePoint now);
    [[nodiscard]] TimePoint next_deadline() const;
    [[nodiscard]] State state() const { return state_; }
    // It is the peer's turn: read a CLC message.
    [[nodiscard]] bool listens() const;

 private:
    Actions translate(clc::Actions from, TimePoint now);
    Actions negotiated(clc::Outcome outcome, TimePoint now);
    Actions finish_connect(Actions actions, TimePoint now);
    Actions reconnect(Actions actions);
    Actions give_up(Reason reason, std::string detail, Actions actions = {});

    const clc::LocalNode& node_;
    group::SmcdGroups& smcd_groups_;
    State state_ = State::kConnecting;
    std::optional<clc::ClientHandshake> handshake_;
    clc::SmcdPeer smcd_;  // whose DMB is being attached
    clc::Outcome outcome_{.kind = clc::Outcome::Kind::kFallBack};
    bool clc_closed_ = false;
    TimePoint leg_deadline_ = kNever;
};

}  // namespace smc::session
