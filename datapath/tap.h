// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// For smcctl: a copy of the bytes of an accelerated connection, which no packet capture sees. The engine fills the tap,
// the control thread empties it; bytes that do not fit into the tap are counted and dropped.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "datapath/pieces.h"
#include "os/clock.h"

namespace smc {

class Tap {
 public:
    struct Piece {
        std::chrono::system_clock::time_point when;
        bool sent = false;         // true: by the application here; false: delivered to it
        std::uint64_t offset = 0;  // of the first byte, in its direction, since the tap began
        std::string bytes;
    };

    void add(bool sent, const Pieces& from, std::uint32_t bytes) {
        const std::lock_guard lock(mutex_);
        const std::uint64_t offset = seen_[sent ? 1 : 0];
        seen_[sent ? 1 : 0] += bytes;
        if (held_ + bytes + kEach > kMost) {
            lost_ += bytes;
            return;
        }
        held_ += bytes + kEach;
        Piece piece{os::wall_now(), sent, offset, {}};
        for (int i = 0; i < from.count && piece.bytes.size() < bytes; i++) {
            const auto part = std::min<std::size_t>(from.part[i].iov_len, bytes - piece.bytes.size());
            piece.bytes.append(static_cast<const char*>(from.part[i].iov_base), part);
        }
        pieces_.push_back(std::move(piece));
    }
    struct Taken {
        std::vector<Piece> pieces;
        std::uint64_t lost = 0;  // bytes dropped since the tap began
        bool more = false;       // there is more to take now
    };
    // Takes about kAtOnce bytes at most, because the control thread, which calls this, has other work, too.
    [[nodiscard]] Taken take() {
        const std::lock_guard lock(mutex_);
        Taken taken;
        for (std::size_t bytes = 0; !pieces_.empty() && bytes < kAtOnce; pieces_.pop_front()) {
            const std::size_t weight = pieces_.front().bytes.size() + kEach;
            bytes += weight;
            held_ -= weight;
            taken.pieces.push_back(std::move(pieces_.front()));
        }
        taken.lost = lost_;
        taken.more = !pieces_.empty();
        return taken;
    }

 private:
    static constexpr std::size_t kMost = 8U << 20, kAtOnce = 512U << 10;
    static constexpr std::size_t kEach = 512;  // overhead of a piece, in memory and as JSON
    std::mutex mutex_;
    std::deque<Piece> pieces_;
    std::size_t held_ = 0;
    std::uint64_t seen_[2] = {}, lost_ = 0;
};

// Holds a connection's tap, if it has one. Without a tap, add() costs one load of a flag.
class TapPoint {
 public:
    void set(std::shared_ptr<Tap> tap) {
        const std::lock_guard lock(mutex_);
        tap_ = std::move(tap);
        open_.store(tap_ != nullptr, std::memory_order_release);
    }
    void add(bool sent, const Pieces& from, std::uint32_t bytes) {
        if (open_.load(std::memory_order_acquire)) {
            const std::lock_guard lock(mutex_);
            if (tap_) {
                tap_->add(sent, from, bytes);
            }
        }
    }

 private:
    std::atomic<bool> open_{false};
    std::mutex mutex_;
    std::shared_ptr<Tap> tap_;
};

}  // namespace smc
