// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// F8: what an application is still given when its connection has ended with an error: the bytes that the peer had
// published. A copy of them, so that nobody waits for the rings. When its kernel has them all, or after a while, the
// leg is to be reset: a reset would otherwise take away what is on its way.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "datapath/leg.h"
#include "smc/flow/receiving.h"
#include "smc/time.h"

namespace smc {

class LastWords {
 public:
    // `ring`: the own one, of which `left` says what is still to be delivered. `timeout`: with an application that
    // does not read.
    LastWords(flow::Receiving left, std::span<std::uint8_t> ring, std::chrono::milliseconds timeout);

    // Gives the leg what it takes. True: there is nothing more to do, or no time.
    bool run(Leg& leg, ConnectionStats& stats, TimePoint now);
    // When to run although nothing happens.
    [[nodiscard]] TimePoint deadline() const { return next_look_; }

 private:
    enum class Written : std::uint8_t { kAll, kPart, kNoMore };
    [[nodiscard]] Written write_all(Leg& leg, ConnectionStats& stats);

    flow::Receiving left_;
    cdc::Cursor first_;
    std::uint32_t ring_bytes_;
    std::vector<std::uint8_t> bytes_;
    std::chrono::milliseconds timeout_;
    TimePoint until_ = kNever;
    TimePoint next_look_ = kNever;
    std::chrono::milliseconds pause_{1};
};

}  // namespace smc
