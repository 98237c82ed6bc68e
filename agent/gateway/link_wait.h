// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What both sessions do about the link of an SMC-R connection.
#pragma once

#include "agent/gateway/gateway.h"

namespace smc {

inline bool is_smc(const clc::Outcome& outcome) {
    return outcome.kind == clc::Outcome::Kind::kSmcD || outcome.kind == clc::Outcome::Kind::kSmcR;
}

// The handshake may have taken the message for its last word already.
template <class Handshake>
clc::Actions never_sent(Handshake& handshake) {
    clc::Actions actions = handshake.peer_closed();
    if (actions.empty()) {
        actions.push_back(clc::Finish{{clc::Outcome::Kind::kTerminate, Reason::kPeerClosed, {}, false, {}, {}, {}}});
    }
    return actions;
}

// Why there is no RMBE, in CLC's words.
inline Reason roce_reason(const Error& error) {
    switch (error.code) {
        case ESTALE:
            return Reason::kOutOfSync;
        case ENODEV:
            return Reason::kNoSmcrDevice;
        case ENOMEM:
            return Reason::kOutOfMemory;
        case ENOTCONN:
        case EBUSY:
            return Reason::kNoActiveLink;
        case EMFILE:
            return Reason::kRtokenFailed;
        case EHOSTUNREACH:
        case ENETUNREACH:
            return Reason::kNoRoute;
        default:
            return Reason::kRmbNotRegistered;
    }
}

template <class Handshake>
asio::awaitable<clc::Actions> Gateway::await_link(AsyncFd& wire, Handshake& handshake,
                                                  const smcr::LinkGroups::Joined& joined) {
    if (!joined.first_contact) {
        co_return joined.group->active() ? handshake.link_ready()
                                         : handshake.link_failed(Reason::kLinkDown, joined.group->why_over().detail);
    }
    const auto read = co_await hear_or_link(wire, joined.group, handshake.deadline());
    if (read) {
        if (const auto* message = std::get_if<clc::Message>(&*read)) {
            if constexpr (std::is_same_v<Handshake, clc::ServerHandshake>) {
                co_return handshake.message(message->view(), std::chrono::steady_clock::now());
            } else {
                co_return handshake.message(message->view());
            }
        }
        if (const auto* fault = std::get_if<clc::Fault>(&*read)) {
            co_return handshake.fault(*fault);
        }
    }
    if (joined.group->active()) {
        co_return handshake.link_ready();
    }
    if (read) {
        co_return handshake.peer_closed();
    }
    if (joined.group->is_over()) {
        const auto& over = joined.group->why_over();
        if constexpr (std::is_same_v<Handshake, clc::ServerHandshake>) {
            if (over.reason == Reason::kTimeoutConfirmLink) {
                co_return handshake.link_refused(over.reason, over.detail);
            }
        }
        co_return handshake.link_failed(over.reason == Reason::kNone ? Reason::kLinkDown : over.reason, over.detail);
    }
    co_return handshake.tick(handshake.deadline());
}

}  // namespace smc
