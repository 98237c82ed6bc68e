// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The client's side of the CLC handshake as a state machine without I/O (RFC 7609 section 3.5, SMC v2.1 appendix). It
// is fed messages, results and time, and answers with actions.
//
//   kIdle          start      -> send Proposal
//   kAwaitAccept   Accept     -> continues by the type that was accepted:
//                  Decline    -> fall back
//   SMC-D:                                        SMC-R:
//   kAttaching     attached   -> send Confirm     kPreparing     RMBE ready -> send Confirm
//                  failed     -> send Decline                    failed     -> send Decline
//                                                 kLinking       link ready -> SMC-R
//                                                                Decline    -> fall back
//                                                                failed     -> Decline, if the server may still wait
//                                                                              for one (C.2); else terminate
//   kDone
//
// Invariants, of both sides:
//   H1  A Decline is only ever sent in lieu of an expected message (appendix C.1, "no chase").
//   H2  Anything that does not parse terminates; only reserved enumeration values decline (C.6).
//   H3  Every waiting state has a deadline (C.5); a late message changes nothing.
//   H4  Exactly one Finish action is ever returned.
#pragma once

#include "smc/clc/actions.h"
#include "smc/time.h"

namespace smc::clc {

class ClientHandshake {
 public:
    enum class State : std::uint8_t { kIdle, kAwaitAccept, kAttaching, kPreparing, kLinking, kDone };

    // `node` outlives this object.
    ClientHandshake(const LocalNode& node, Means means)
        : node_(node), smcd_offered_(means.smcd && !node.ism.empty()), roce_(std::move(means.roce)) {}

    [[nodiscard]] Actions start(TimePoint now);
    [[nodiscard]] Actions message(Bytes bytes);
    // This side's DMB is registered, and the server's is attached. `in_sync`: both sides agree whether this is a
    // first contact.
    [[nodiscard]] Actions attached(const LocalDmb& own, bool in_sync);
    [[nodiscard]] Actions attach_failed(Reason reason, std::string detail);
    [[nodiscard]] Actions rmbe_ready(const LocalRmbe& own, TimePoint now);
    // `reason` kOutOfSync: the server named a link that is not known here.
    [[nodiscard]] Actions prepare_failed(Reason reason, std::string detail);
    // There will be no Confirm, because of this side's application: the Decline in its place, if one is due.
    [[nodiscard]] std::optional<Message> give_up(Reason reason);
    [[nodiscard]] Actions link_ready();
    // On first contact the link failed, or the server's CONFIRM LINK was wrong, and the server may still wait for a
    // Decline: sends one (RFC 7609 C.2, C.7.1).
    [[nodiscard]] Actions link_refused(Reason reason, std::string detail);
    // The link failed later, or no CONFIRM LINK came: it is too late for a Decline, and the client breaks the TCP
    // connection (RFC 7609 C.7).
    [[nodiscard]] Actions link_failed(Reason reason, std::string detail);
    [[nodiscard]] Actions fault(const Fault& fault);
    [[nodiscard]] Actions peer_closed();
    [[nodiscard]] Actions tick(TimePoint now);

    [[nodiscard]] State state() const { return state_; }
    [[nodiscard]] TimePoint next_deadline() const { return deadline_; }

 private:
    [[nodiscard]] Proposal proposal() const;
    [[nodiscard]] V2Extension v2_extension() const;
    [[nodiscard]] bool offers_smcr_v2() const;
    Actions finish(Outcome outcome);
    Actions decline(Reason reason, std::string detail, bool out_of_sync = false);
    Actions peer_declined(Bytes bytes);
    Actions accept(const AcceptD& accept);
    Actions accept(const AcceptR& accept);

    const LocalNode& node_;
    bool smcd_offered_;
    std::optional<RoceOffer> roce_;
    State state_ = State::kIdle;
    TimePoint deadline_ = kNever;
    std::uint8_t answered_version_ = kVersion2;  // of the Accept, and of a Decline that answers it
    SmcdPeer smcd_;
    SmcrPeer smcr_;
};

}  // namespace smc::clc
