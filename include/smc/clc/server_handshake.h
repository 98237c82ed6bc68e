// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The server's side of the CLC handshake as a state machine without I/O (RFC 7609 section 3.5, SMC v2.1 appendix).
// Invariants H1 to H4: client_handshake.h.
//
//   kAwaitProposal  Proposal   -> the first type that fits, or Decline
//                   Decline    -> fall back
//   kPreparing      failed     -> the next type, or Decline
//                   prepared, and the application is connected -> send Accept
//   kAwaitConfirm   Confirm    -> continues by the type that was accepted, below
//                   Decline    -> fall back
//                   first contact of SMC-R: a reserved MTU (C.6), other maxima or features (v2.1) -> late Decline
//   SMC-D:                                        SMC-R:
//   kAttaching      attached   -> SMC-D           kLinking       link ready -> SMC-R
//                   (failed: terminate, C.3)                     Decline    -> fall back
//   kDone
#pragma once

#include "smc/clc/actions.h"
#include "smc/clc/selection.h"
#include "smc/time.h"

namespace smc::clc {

class ServerHandshake {
 public:
    enum class State : std::uint8_t { kAwaitProposal, kPreparing, kAwaitConfirm, kAttaching, kLinking, kDone };

    // `node` outlives this object.
    ServerHandshake(const LocalNode& node, Means means, TimePoint now)
        : node_(node), means_(std::move(means)), deadline_(now + node.step_timeout) {}

    [[nodiscard]] Actions message(Bytes bytes, TimePoint now);
    // `link_id`: the link group's, 0 on first contact.
    [[nodiscard]] Actions dmb_ready(const LocalDmb& own, bool first_contact, std::uint32_t link_id, TimePoint now);
    [[nodiscard]] Actions rmbe_ready(const LocalRmbe& own, TimePoint now);
    // The type that was tried cannot be used: tries the next one.
    [[nodiscard]] Actions prepare_failed(Reason reason, std::string detail);
    // The leg to the server's application is connected, or could not be. The application has not accepted it yet: the
    // leg is held until the handshake is over. `may_decline`: the client can do without this TCP connection.
    [[nodiscard]] Actions application_ready(TimePoint now);
    [[nodiscard]] Actions application_refused(std::string detail, bool may_decline);
    [[nodiscard]] Actions attached();
    [[nodiscard]] Actions attach_failed(Reason reason, std::string detail);
    [[nodiscard]] Actions link_ready();
    // The link failed after the point of no return (RFC 7609 C.3, C.7): terminates.
    [[nodiscard]] Actions link_failed(Reason reason, std::string detail);
    // On first contact, the client's CONFIRM LINK has not come: the queue pair was never connected, or failed, or the
    // client did not answer. Sends a Decline (C.2; after a timeout C.7 would reset, but a Linux client waits for a
    // Decline and nothing else).
    [[nodiscard]] Actions link_refused(Reason reason, std::string detail);
    [[nodiscard]] Actions fault(const Fault& fault);
    [[nodiscard]] Actions peer_closed();
    [[nodiscard]] Actions tick(TimePoint now);

    [[nodiscard]] State state() const { return state_; }
    [[nodiscard]] TimePoint next_deadline() const { return state_ == State::kDone ? kNever : deadline_; }
    // The agreement so far; complete once Finish says kSmcD.
    [[nodiscard]] const SmcdPeer& smcd_peer() const { return smcd_; }

 private:
    Actions finish(Outcome outcome);
    Actions decline(Reason reason, std::string detail);
    Actions late_decline(Reason reason, std::string detail, Outcome::Kind kind);
    Actions terminate(Reason reason, std::string detail);
    [[nodiscard]] bool may_decline_late() const;
    Actions peer_declined(Bytes bytes);
    Actions proposed(Bytes bytes, TimePoint now);
    Actions try_next(std::string detail);
    [[nodiscard]] std::optional<Action> try_candidate();
    [[nodiscard]] bool offered(Candidate candidate) const;
    [[nodiscard]] Reason& reason_of(Candidate candidate);
    [[nodiscard]] Reason smcd_v1_reason() const;
    Actions confirm(const AcceptD& confirm);
    Actions confirm(const AcceptR& confirm, TimePoint now);
    Actions accept_if_prepared(TimePoint now);

    const LocalNode& node_;
    Means means_;
    State state_ = State::kAwaitProposal;
    TimePoint deadline_;
    Proposal proposal_;
    Candidate candidate_ = Candidate::kNone;
    std::size_t next_gid_ = 0;  // the next GID of the Proposal to try SMC-D with
    Decline reasons_;           // why not, for each type
    SmcdPeer smcd_;
    SmcrPeer smcr_;
    std::optional<LocalDmb> own_dmb_;
    std::optional<LocalRmbe> own_rmbe_;
    std::uint32_t link_id_ = 0;
    bool application_ready_ = false;
};

}  // namespace smc::clc
