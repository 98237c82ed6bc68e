// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "linux_reader.h"

#include <algorithm>

namespace smc::sim {

void LinuxReader::stop() {
    smc_->consumed(consumed_);
    smc_->stop();
}

void LinuxReader::publish(const cdc::Producer& producer, std::uint32_t written) {
    said_ = producer;
    asked_ = false;
    if (std::exchange(told_, consumed_) != consumed_) {
        smc_->consumed(consumed_);
    }
    smc_->publish(producer, written);
}

void LinuxReader::tell() {
    publish(said_, 0);
}

bool LinuxReader::has_consumed(cdc::Cursor position) const {
    return cdc::distance(position, consumed_, size()) <= size();
}

bool LinuxReader::is_due(const flow::PeerState& peer) const {
    if (asked_) {
        return true;
    }
    if (peer.urgent && peer.urgent != urgent_ && has_consumed(*peer.urgent)) {
        return true;
    }
    constexpr std::uint32_t kLeast = 2304;  // half of the smallest send buffer
    const std::uint32_t gained = cdc::distance(told_, consumed_, size());
    const std::uint32_t in_use = cdc::distance(told_, peer.producer.cursor, size());
    return gained > std::max(size() / 10, kLeast) && (in_use >= size() / 2 || blocked_);
}

void LinuxReader::consumed(cdc::Cursor cursor) {
    consumed_ = cursor;
    const flow::PeerState peer = smc_->peer();
    if (is_due(peer)) {
        if (peer.urgent && has_consumed(*peer.urgent)) {
            urgent_ = peer.urgent;
        }
        tell();
    }
    if (consumed_ == peer.producer.cursor) {
        blocked_ = false;
    }
}

void LinuxReader::flush() {
    smc_->flush();
    const flow::PeerState peer = smc_->peer();
    if (std::exchange(heard_, peer.message) == peer.message) {
        return;
    }
    blocked_ = (peer.producer.flags & cdc::kWriterBlocked) != 0;
    asked_ = (peer.producer.flags & cdc::kCursorRequested) != 0;
    if (consumed_ == peer.producer.cursor) {
        blocked_ = false;
    }
}

}  // namespace smc::sim
