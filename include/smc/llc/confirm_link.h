// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// CONFIRM LINK: sent over the new queue pair itself, it shows both sides that the queue pair works and which peer is at
// its other end (RFC 7609 section 3.5.1.5, A.3.1). The server sends the request, the client the reply. Each must say
// what CLC said: GID and QP number, from release 1 on the maxima (SMC v2.1, CONFIRM LINK, note 4), and the MAC address
// if no router is between the peers (note 3). A reply also repeats the link's number.
#pragma once

#include "smc/llc/link_out.h"

namespace smc::llc {

class ConfirmLinkFlow {
 public:
    enum class State : std::uint8_t { kIdle, kAwaited, kConfirmed };

    // The queue pair is connected.
    void start(const GroupTerms& group, const LinkTerms& link, const LinkOut& out, TimePoint now);
    // Returns what is wrong; empty: the link is confirmed.
    [[nodiscard]] std::string on(const ConfirmLink& message, const GroupTerms& group, const LinkTerms& link,
                                 const LinkOut& out);

    [[nodiscard]] State state() const { return state_; }
    // When the wait for CONFIRM LINK ends; kNever: nothing is awaited.
    [[nodiscard]] TimePoint deadline() const { return deadline_; }
    // Valid once the link is confirmed.
    [[nodiscard]] bool eye_catchers() const { return eye_catchers_; }
    [[nodiscard]] LinkId peer_id() const { return peer_id_; }

 private:
    State state_ = State::kIdle;
    TimePoint deadline_ = kNever;
    bool eye_catchers_ = false;
    LinkId peer_id_{};
};

}  // namespace smc::llc
