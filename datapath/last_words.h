// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// F8: when a connection has ended with an error, its application is still given the bytes that the peer had published,
// and the end of the peer's stream if the peer had ended it. The bytes are copied, so that the ring can be freed at
// once. The leg is reset only when the application's kernel has everything, because an earlier reset would discard what
// is on its way. An application that does not read is waited for until a timeout; if the peer had ended its stream,
// everything has arrived here and is the application's, as with TCP, so the timeout begins only when it writes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "datapath/leg.h"
#include "smc/flow/flow.h"
#include "smc/time.h"

namespace smc {

class LastWords {
 public:
    // `ring`: the own ring; `left` says which of its bytes are still to be delivered.
    LastWords(flow::Receiving left, std::span<std::uint8_t> ring, const flow::End& end,
              std::chrono::milliseconds timeout);

    // The application has written something. It will never be read.
    void application_wrote() { hurries_ = true; }
    // Writes as much to the leg as it takes. True: everything is delivered, the leg has failed, or time is up.
    bool run(Leg& leg, ConnectionStats& stats, TimePoint now);
    // When to call run() without an event.
    [[nodiscard]] TimePoint deadline() const { return next_look_; }

 private:
    enum class Written : std::uint8_t { kAll, kPart, kNoMore };
    [[nodiscard]] Written write_all(Leg& leg, ConnectionStats& stats);

    flow::Receiving left_;
    cdc::Cursor first_;
    std::uint32_t ring_bytes_;
    std::vector<std::uint8_t> bytes_;
    bool with_end_;  // the end of the stream is still to be delivered
    bool hurries_;   // the timeout counts
    std::chrono::milliseconds timeout_;
    TimePoint until_ = kNever;
    TimePoint next_look_ = kNever;
    std::chrono::milliseconds pause_{1};
};

}  // namespace smc
