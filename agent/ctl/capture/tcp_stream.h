// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The first bytes of one direction of a TCP connection, put in order: CLC stands there. What lies further ahead than the
// window is not kept; it will be seen again if it matters, or there is a hole for good.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "smc/layout.h"

namespace smc::capture {

class TcpStream {
 public:
    // `first` is the sequence number of the first byte, one behind the SYN's.
    explicit TcpStream(std::uint32_t first = 0) : next_(first) {}

    // Payload as captured; what the snap length cut off makes a hole.
    void add(std::uint32_t sequence, wire::Bytes payload);
    // In order, from the first byte that has not been taken.
    [[nodiscard]] wire::Bytes ready() const { return ready_; }
    void take(std::size_t bytes);

 private:
    static constexpr std::uint32_t kWindow = 16 * 1024;
    static constexpr std::size_t kMaxAhead = 8;  // segments

    void append(std::uint32_t sequence, wire::Bytes payload);

    std::uint32_t next_;
    std::vector<std::uint8_t> ready_;
    std::map<std::uint32_t, std::vector<std::uint8_t>> ahead_;  // by distance from base_: ordered across the wrap
    std::uint32_t base_ = next_;
};

}  // namespace smc::capture
