// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// ADD LINK: the server offers a second link (RFC 7609 sections 3.5.1.6 and 3.5.5.1.1, A.3.2, C.7.1; SMC v2.1). There is
// never a second path here: a client rejects every offer, and a server before release 1, which must offer, takes back
// what was accepted.
//
//   server                                              client
//   kIdle      offer     -> ADD LINK, kOffered          kIdle     await    -> kAwaited
//   kOffered   rejection -> kIdle                       kAwaited  ADD LINK -> rejection, kIdle
//              positive  -> DELETE LINK, kTakenBack               time-out -> kIdle (Linux's server may not offer)
//              time-out  -> the group's end (C.7.1)
//   kTakenBack reply, time-out -> kIdle (Linux's client does not answer while it adds the link)
#pragma once

#include <optional>

#include "smc/llc/link_out.h"

namespace smc::llc {

class AddLinkFlow {
 public:
    // The server's first attempt. Until under_way() ends the group carries nothing.
    void offer(const GroupTerms& group, const LinkOut& out, TimePoint now);
    // The client knows that the server will make one.
    void await(const GroupTerms& group, TimePoint now);

    void on(const AddLink& message, const GroupTerms& group, const LinkOut& out, TimePoint now);
    // The reply to the DELETE LINK by which an offer was taken back.
    void on_reply(const DeleteLink& reply);
    static void on(const RequestAddLink& message, const GroupTerms& group, const LinkOut& out);
    // What it returned is the end; nothing: one link will do.
    [[nodiscard]] std::optional<Over> expire();

    [[nodiscard]] bool under_way() const { return state_ != State::kIdle; }
    [[nodiscard]] TimePoint deadline() const { return deadline_; }

 private:
    enum class State : std::uint8_t { kIdle, kOffered, kTakenBack, kAwaited };
    void enter(State state, TimePoint deadline);

    State state_ = State::kIdle;
    TimePoint deadline_ = kNever;
};

}  // namespace smc::llc
