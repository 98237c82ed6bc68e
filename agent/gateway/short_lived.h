// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Whether an SMC connection has ended before it had earned its set-up, which takes most of a millisecond longer than
// that of TCP. See bpf/smc_short_lived.h.
#pragma once

#include <chrono>

#include "agent/connections/connections.h"
#include "agent/steer/addresses.h"

namespace smc {

// It earns its set-up by one of these: it lives so long that the set-up is a hundredth of it, or moves enough bytes or
// messages to save that time. `now`: when it ended, or the present time if it still runs.
inline bool is_short_lived(const Connection& c, TimePoint now) {
    constexpr auto kLong = std::chrono::milliseconds(100);
    constexpr std::uint64_t kBytes = 1 << 20, kMessages = 64;
    const auto relaxed = std::memory_order_relaxed;
    return now - c.began < kLong &&
           c.stats->bytes_sent.load(relaxed) + c.stats->bytes_received.load(relaxed) < kBytes &&
           c.stats->signals.load(relaxed) < kMessages;
}

// The kind of a connection. Connections of one kind resemble each other, so those that have ended tell what to expect
// of the next one.
inline smc_short_key kind_of(const Connection& c, std::uint64_t netns_cookie) {
    smc_short_key kind{netns_cookie, c.cgroup, {}, SMC_INBOUND};
    if (c.role == Role::kClient) {
        kind.server = to_abi(c.server);
        kind.direction = SMC_OUTBOUND;
    }
    kind.server.port = c.server.port;
    return kind;
}

}  // namespace smc
