// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Splits what was taken from the application into RDMA writes: the memory that is sent from is a ring, and so is the
// peer's RMBE, and their sizes may differ (RFC 7609 section 4.2).
//
// Invariant:
//   F7  Memory to send from is used again only when the peer's consumer cursor is beyond it, because a retransmission
//       may need all bytes that the peer has not consumed. The flow's window is not larger than this memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "smc/wire/cdc.h"
#include "smc/wire/list.h"

namespace smc::flow {

struct RdmaWrite {
    std::uint32_t from = 0;   // offset in the memory to send from
    std::uint32_t to = 0;     // offset in the data of the peer's RMBE
    std::uint32_t bytes = 0;  // at least 1

    bool operator==(const RdmaWrite&) const = default;
};

class Staging {
 public:
    // Bytes may wrap at the end of the peer's ring and at the end of the memory to send from.
    static constexpr std::uint32_t kMaxWrites = 3;

    // `memory`: bytes to send from. `ring`: bytes of data in the peer's RMBE, at least `memory`.
    Staging(std::uint32_t memory, std::uint32_t ring) : memory_(memory), ring_(ring) {}

    // Offset in the memory where the next bytes go.
    [[nodiscard]] std::uint32_t next() const { return static_cast<std::uint32_t>(staged_ % memory_); }

    // `bytes` <= `memory` were put at next(). Returns the writes that carry them.
    List<RdmaWrite, kMaxWrites> writes(std::uint32_t bytes) {
        List<RdmaWrite, kMaxWrites> out;
        while (bytes > 0) {
            const std::uint32_t from = next();
            const std::uint32_t n = std::min({bytes, memory_ - from, ring_ - to_.count});
            out.push_back({from, to_.count, n});
            to_ = cdc::advance(to_, n, ring_);
            staged_ += n;
            bytes -= n;
        }
        return out;
    }
    // Returns the writes that carry the last `bytes` once more; the peer has not consumed them (F7).
    [[nodiscard]] List<RdmaWrite, kMaxWrites> again(std::uint32_t bytes) const {
        Staging before = *this;
        bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, staged_));
        before.staged_ -= bytes;
        before.to_.count = (to_.count + ring_ - bytes) % ring_;
        return before.writes(bytes);
    }

 private:
    std::uint32_t memory_, ring_;
    std::uint64_t staged_ = 0;  // bytes that were ever put into the memory
    cdc::Cursor to_;
};

}  // namespace smc::flow
