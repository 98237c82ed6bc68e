// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ctl/capture/tcp_stream.h"

#include <algorithm>

namespace smc::capture {

namespace {

// If more bytes than these are missing from a capture, later segments no longer count as this connection's.
constexpr std::int32_t kNear = 1 << 28;

std::int32_t distance(std::uint32_t to, std::uint32_t from) {
    return static_cast<std::int32_t>(to - from);
}

}  // namespace

bool TcpStream::is_near(std::uint32_t sequence) const {
    const std::int32_t ahead = distance(sequence, highest_);
    return ahead > -kNear && ahead < kNear;
}

void TcpStream::seen(std::uint32_t end) {
    if (distance(end, highest_) > 0) {
        highest_ = end;
    }
}

// Precondition: the payload begins at or before next_. Bytes beyond kMostReady are dropped: they are not CLC.
void TcpStream::append(std::uint32_t sequence, wire::Bytes payload) {
    const std::size_t seen = next_ - sequence;
    if (seen >= payload.size()) {
        return;
    }
    const wire::Bytes fresh = payload.subspan(seen);
    const std::size_t room = kMostReady - std::min(kMostReady, ready_.size());
    const std::size_t kept = std::min(room, fresh.size());
    ready_.insert(ready_.end(), fresh.begin(), fresh.begin() + static_cast<std::ptrdiff_t>(kept));
    next_ += static_cast<std::uint32_t>(kept);
}

void TcpStream::drain() {
    while (!ahead_.empty()) {
        const auto first = ahead_.begin();
        const std::uint32_t start = base_ + first->first;
        if (distance(start, next_) > 0) {
            return;
        }
        append(start, first->second);
        ahead_bytes_ -= first->second.size();
        ahead_.erase(first);
    }
}

void TcpStream::add(std::uint32_t sequence, wire::Bytes payload) {
    if (stopped_ || payload.empty()) {
        return;
    }
    if (distance(sequence, next_) <= 0) {
        append(sequence, payload);
        drain();
        return;
    }
    payload = payload.first(std::min(payload.size(), kMostReady));
    auto& kept = ahead_[sequence - base_];
    if (payload.size() > kept.size() && ahead_bytes_ - kept.size() + payload.size() <= kMostAhead) {
        ahead_bytes_ += payload.size() - kept.size();
        kept.assign(payload.begin(), payload.end());
    }
    if (kept.empty()) {
        ahead_.erase(sequence - base_);
    }
}

void TcpStream::take(std::size_t bytes) {
    ready_.erase(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(bytes));
}

void TcpStream::skip_to(std::uint32_t sequence) {
    ready_.clear();
    next_ = sequence;
    drain();
}

void TcpStream::stop() {
    stopped_ = true;
    ready_ = {};
    ahead_ = {};
    ahead_bytes_ = 0;
}

}  // namespace smc::capture
