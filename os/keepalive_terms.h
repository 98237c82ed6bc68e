// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

namespace smc {

// How long an application waits for a peer that does not answer: SO_KEEPALIVE, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT
// and TCP_USER_TIMEOUT of its socket. 0: not set; the kernel's or the agent's default applies.
struct KeepaliveTerms {
    bool keepalive = false;
    unsigned idle_s = 0;
    unsigned interval_s = 0;
    unsigned probes = 0;
    unsigned user_timeout_ms = 0;

    bool operator==(const KeepaliveTerms&) const = default;
};

}  // namespace smc
