// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/ctl/capture/tcp_stream.h"

#include <algorithm>

namespace smc::capture {

// Precondition: the payload begins at or before next_ (modulo 2^32).
void TcpStream::append(std::uint32_t sequence, wire::Bytes payload) {
    const std::uint32_t seen = next_ - sequence;
    if (seen < payload.size() && ready_.size() < kWindow) {
        ready_.insert(ready_.end(), payload.begin() + seen, payload.end());
        next_ += static_cast<std::uint32_t>(payload.size() - seen);
    }
}

void TcpStream::add(std::uint32_t sequence, wire::Bytes payload) {
    const auto distance = static_cast<std::int32_t>(sequence - next_);
    if (payload.empty() || payload.size() > kWindow * 4) {
        return;
    }
    if (distance > 0) {
        if (static_cast<std::uint32_t>(distance) < kWindow && ahead_.size() < kMaxAhead) {
            payload = payload.first(std::min<std::size_t>(payload.size(), kWindow));
            ahead_.try_emplace(sequence - base_, payload.begin(), payload.end());
        }
        return;
    }
    append(sequence, payload);
    while (!ahead_.empty()) {
        const auto first = ahead_.begin();
        const std::uint32_t start = base_ + first->first;
        if (static_cast<std::int32_t>(start - next_) > 0) {
            break;
        }
        append(start, first->second);
        ahead_.erase(first);
    }
}

void TcpStream::take(std::size_t bytes) {
    ready_.erase(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(bytes));
}

}  // namespace smc::capture
