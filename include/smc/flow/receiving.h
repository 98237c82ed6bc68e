// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The half of a connection that receives: how much the peer has put into this side's ring, how much of it the
// application has taken, and where the peer's urgent data ends (RFC 7609 sections 4.3 and 4.7.5).
#pragma once

#include <cstdint>
#include <optional>

#include "smc/wire/cdc.h"

namespace smc::flow {

// The state that the peer published last. Everything in it is the peer's claim, to be checked before it is used.
struct PeerState {
    cdc::Producer producer;             // in our ring, with its flags
    cdc::Cursor consumer;               // in the peer's ring
    std::optional<cdc::Cursor> urgent;  // after an urgent byte that was announced; may be told more than once
    std::uint16_t message = 0;          // number of the CDC message, if there are messages: tells repetitions apart

    bool operator==(const PeerState&) const = default;
};

class Receiving {
 public:
    // `size`: bytes of this side's ring.
    explicit Receiving(std::uint32_t size) : size_(size) {}

    // True if the peer can have this producer cursor: it never goes back, and never beyond the ring.
    [[nodiscard]] bool can_be(cdc::Cursor produced) const;
    // True if this producer cursor is one that the peer had before, at most a lap ago.
    [[nodiscard]] bool was(cdc::Cursor produced) const;
    void peer_produced(const cdc::Producer& produced, std::optional<cdc::Cursor> urgent);

    [[nodiscard]] std::uint32_t available() const { return cdc::distance(consumed_, produced_.cursor, size_); }
    // The next bytes for the application, if there are any: up to `bytes` from `at` on. An urgent byte is a piece of
    // its own; it is the last byte before its mark.
    struct Piece {
        cdc::Cursor at;
        std::uint32_t bytes = 0;
        bool urgent = false;
    };
    [[nodiscard]] Piece next() const;
    // The application took the first `bytes` of next().
    void delivered(std::uint32_t bytes);

    [[nodiscard]] cdc::Cursor consumed() const { return consumed_; }
    [[nodiscard]] const cdc::Producer& produced() const { return produced_; }

 private:
    std::uint32_t size_;
    cdc::Producer produced_;
    std::uint32_t lookback_ =
        0;  // how many bytes the peer has produced, but at most a lap: how far back was() may look
    cdc::Cursor consumed_;
    std::optional<cdc::Cursor> urgent_;  // after an urgent byte that is not consumed yet
};

}  // namespace smc::flow
