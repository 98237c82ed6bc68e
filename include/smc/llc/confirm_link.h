// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// CONFIRM LINK: both sides see over the new queue pair itself that it works, and who is at its other end (RFC 7609
// section 3.5.1.5, A.3.1). The server asks, the client answers. What either says must be what CLC said: GID and QP
// number, from release 1 on the maxima (SMC v2.1, CONFIRM LINK, note 4), the MAC address where no router is between the
// peers (note 3); and a reply repeats the link's number.
#pragma once

#include "smc/llc/link_out.h"

namespace smc::llc {

class ConfirmLinkFlow {
 public:
    enum class State : std::uint8_t { kIdle, kAwaited, kConfirmed };

    // The queue pair is connected.
    void start(const GroupTerms& group, const LinkTerms& link, const LinkOut& out, TimePoint now);
    // Empty: the link is confirmed. Otherwise what is wrong.
    [[nodiscard]] std::string on(const ConfirmLink& message, const GroupTerms& group, const LinkTerms& link,
                                 const LinkOut& out);

    [[nodiscard]] State state() const { return state_; }
    // Of the wait; kNever otherwise.
    [[nodiscard]] TimePoint deadline() const { return deadline_; }
    // Once confirmed.
    [[nodiscard]] bool eye_catchers() const { return eye_catchers_; }
    [[nodiscard]] LinkId peer_id() const { return peer_id_; }

 private:
    State state_ = State::kIdle;
    TimePoint deadline_ = kNever;
    bool eye_catchers_ = false;
    LinkId peer_id_{};
};

}  // namespace smc::llc
