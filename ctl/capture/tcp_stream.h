// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The first bytes of one direction of a TCP connection, put in order: they are CLC. Only as many bytes are kept as CLC
// messages can need. Bytes further ahead are dropped; the stream has a hole unless they are captured again.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "smc/wire/layout.h"

namespace smc::capture {

class TcpStream {
 public:
    static constexpr std::size_t kMostReady = std::size_t{2} * 1024;  // several CLC messages

    // `first` is the sequence number of the first byte, one more than the SYN's.
    explicit TcpStream(std::uint32_t first = 0) : next_(first), base_(first), highest_(first) {}

    // Payload as captured; what the snap length cut off makes a hole.
    void add(std::uint32_t sequence, wire::Bytes payload);
    // The bytes in order, from the first one that has not been taken.
    [[nodiscard]] wire::Bytes ready() const { return ready_; }
    void take(std::size_t bytes);
    // Goes on at `sequence`, after a hole.
    void skip_to(std::uint32_t sequence);
    // Takes no more bytes, and frees those that are kept.
    void stop();

    [[nodiscard]] bool stopped() const { return stopped_; }
    // Whether later bytes are there, but not the next one.
    [[nodiscard]] bool has_hole() const { return !ahead_.empty(); }
    // Whether `sequence` may belong to this connection: the sequence numbers of an earlier one on the same ports are
    // far away from those seen so far.
    [[nodiscard]] bool is_near(std::uint32_t sequence) const;
    // Notes that a segment up to `end` was seen, whether its bytes are kept or not.
    void seen(std::uint32_t end);

 private:
    static constexpr std::size_t kMostAhead = std::size_t{8} * 1024;

    void append(std::uint32_t sequence, wire::Bytes payload);
    void drain();

    std::uint32_t next_, base_, highest_;
    bool stopped_ = false;
    std::vector<std::uint8_t> ready_;
    std::map<std::uint32_t, std::vector<std::uint8_t>> ahead_;  // by distance from base_: ordered across the wrap
    std::size_t ahead_bytes_ = 0;
};

}  // namespace smc::capture
