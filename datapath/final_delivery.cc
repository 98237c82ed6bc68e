// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/final_delivery.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "datapath/counter.h"

namespace smc {

namespace {

// Longest pause between two checks whether the application's kernel has acknowledged everything: no event reports it.
// The second one is for applications that may take their time.
constexpr auto kLongestPause = std::chrono::milliseconds(50), kLongestCalmPause = std::chrono::milliseconds(1000);

// Bytes that are kept for readers whose timeout does not run, over all connections.
std::atomic<std::size_t> kept_by_all{0};

}  // namespace

FinalDelivery::FinalDelivery(flow::Receiving left, std::span<std::uint8_t> ring, const flow::End& end,
                             std::chrono::milliseconds timeout)
    : left_(left),
      first_(left.consumed()),
      ring_bytes_(static_cast<std::uint32_t>(ring.size())),
      with_end_(end.peer_done),
      timeout_runs_(!end.peer_done || end.reason == Reason::kPeerClosedEarly),
      timeout_(timeout) {
    bytes_.reserve(left.available());
    const Pieces all = pieces(ring, first_.count, left.available());
    for (int i = 0; i < all.count; i++) {
        const auto* from = static_cast<const std::uint8_t*>(all.part[i].iov_base);
        bytes_.insert(bytes_.end(), from, from + all.part[i].iov_len);
    }
    if (!timeout_runs_) {
        kept_ = bytes_.size();
        timeout_runs_ = kept_ != 0 && kept_by_all.fetch_add(kept_, std::memory_order_relaxed) + kept_ > kMostKept;
    }
}

void FinalDelivery::give_back() {
    kept_by_all.fetch_sub(std::exchange(kept_, 0), std::memory_order_relaxed);
}

FinalDelivery::Written FinalDelivery::write_all(Leg& leg, ConnectionStats& stats) {
    while (left_.available() != 0) {
        const auto piece = left_.next();
        const auto at = cdc::distance(first_, piece.at, ring_bytes_);
        const Pieces from = pieces(bytes_, at, piece.bytes);
        const auto written = leg.write(from, piece.urgent);
        if (written.outcome == Leg::Outcome::kBytes) {
            stats.tap.add(false, from, written.bytes);
            add(stats.bytes_received, written.bytes);
            left_.delivered(written.bytes);
        } else if (written.outcome != Leg::Outcome::kInterrupted) {
            return written.outcome == Leg::Outcome::kNothing ? Written::kPart : Written::kNoMore;
        }
    }
    if (std::exchange(with_end_, false)) {
        leg.end_writing();
    }
    bytes_ = {};
    give_back();
    return Written::kAll;
}

bool FinalDelivery::run(Leg& leg, ConnectionStats& stats, TimePoint now) {
    const Written written = write_all(leg, stats);
    const std::size_t left = left_.available() + leg.unsent();
    if (written == Written::kNoMore || (written == Written::kAll && left == 0)) {
        return true;
    }
    const bool reads = left < std::exchange(undelivered_, std::min(undelivered_, left));
    if (timeout_runs_ && (reads || until_ == kNever)) {
        until_ = now + timeout_;
    }
    next_look_ = written == Written::kAll ? std::min(until_, now + pause_) : until_;
    pause_ = std::min(2 * pause_, timeout_runs_ ? kLongestPause : kLongestCalmPause);
    return now >= until_;
}

}  // namespace smc
