// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// F8: when a connection has ended with an error, its application is still given the bytes that the peer had published,
// and the end of the peer's stream if the peer had ended it. The bytes are copied, so that the ring can be freed at
// once. The leg is reset when the application's kernel has everything, because an earlier reset would discard what is
// on its way; or if the application has read nothing for `timeout`. If the peer had ended its stream,
// everything has arrived here and is the application's, as with TCP: then the timeout begins only when the application
// writes, or when all connections together keep more than kMostKept bytes for such readers.
//
// Also used when both streams have ended in order and the leg still has bytes: there are none to copy, and the leg is
// closed when they are read. (The agent keeps the connection's RMBE or DMB, and its place among limits.connections.)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "datapath/leg.h"
#include "smc/flow/flow.h"
#include "smc/time.h"

namespace smc {

class FinalDelivery {
 public:
    static constexpr std::size_t kMostKept = std::size_t{64} << 20;

    // `ring`: this side's ring; `left` says which of its bytes are still to be delivered.
    FinalDelivery(flow::Receiving left, std::span<std::uint8_t> ring, const flow::End& end,
                  std::chrono::milliseconds timeout);
    FinalDelivery(const FinalDelivery&) = delete;
    FinalDelivery& operator=(const FinalDelivery&) = delete;
    ~FinalDelivery() { give_back(); }

    // The application has written bytes, which will never be read: the timeout counts from the next run() on.
    void application_wrote() { timeout_runs_ = true; }
    // The application has heard of the end of the peer's stream, and has written nothing since.
    [[nodiscard]] bool ended_in_order() const { return !timeout_runs_; }
    // Writes as much to the leg as it takes. True: everything is delivered, the leg has failed, or time is up.
    bool run(Leg& leg, ConnectionStats& stats, TimePoint now);
    // When to call run() without an event.
    [[nodiscard]] TimePoint deadline() const { return next_look_; }

 private:
    enum class Written : std::uint8_t { kAll, kPart, kNoMore };
    [[nodiscard]] Written write_all(Leg& leg, ConnectionStats& stats);
    void give_back();

    flow::Receiving left_;
    cdc::Cursor first_;
    std::uint32_t ring_bytes_;
    std::vector<std::uint8_t> bytes_;
    std::size_t kept_ = 0;  // bytes of bytes_ that count towards kMostKept
    bool with_end_;         // the end of the stream is still to be delivered
    bool timeout_runs_;     // the timeout counts
    std::chrono::milliseconds timeout_;
    std::size_t undelivered_ = SIZE_MAX;  // the fewest bytes so far that the application's kernel has not acknowledged
    TimePoint until_ = kNever;
    TimePoint next_look_ = kNever;
    std::chrono::milliseconds pause_{1};
};

}  // namespace smc
