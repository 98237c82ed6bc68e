// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The half of a connection that sends: the producer cursor in the peer's ring, what the peer has consumed of it, and
// urgent data on its way (RFC 7609 sections 4.3, 4.5.1 and 4.7).
#pragma once

#include <algorithm>
#include <cstdint>

#include "smc/wire/cdc.h"

namespace smc::flow {

// Urgent data on its way to the peer (section 4.7.5). An urgent byte that waits in the leg is announced (P). When it is
// taken it is marked (U), and nothing is written after it before the peer has consumed it: its mark would be lost.
//
//   state                     announce                  the urgent byte is taken   other bytes are taken
//   kNone                     kPending, tell            kOutstanding               kNone
//   kPending                  -                         kOutstanding               kPending
//   kOutstanding              kOutstandingAndPending    kOutstanding               kNone
//   kOutstandingAndPending    -                         kOutstanding               kPending
//
// Bytes are taken in the last two states only after the peer has consumed everything.
class UrgentSend {
 public:
    enum class State : std::uint8_t { kNone, kPending, kOutstanding, kOutstandingAndPending };

    // True: the peer is to be told now.
    bool announce();
    void took(bool urgent);
    // An urgent byte is in the ring.
    [[nodiscard]] bool outstanding() const;
    // An urgent byte lies ahead in what the application has written.
    [[nodiscard]] bool pending() const;
    // The flags P and U, to be published with what was just taken.
    [[nodiscard]] std::uint8_t flags() const;

 private:
    State state_ = State::kNone;
};

class Sending {
 public:
    static constexpr std::uint32_t kWholeRingProbes = 64;  // bytes, one for each time that the peer is asked

    // `size`: bytes of the peer's ring. `window`: how many of them may be in use at once; less than `size` if there is
    // less memory to send from. `cursor_is_told`: the peer sends its consumer cursor in messages. If the window is then
    // smaller than the ring, the peer is asked for its cursor (flag R), because the peer compares what it has consumed
    // with its own ring: Linux does not report less than a tenth of that unless it was asked before it consumed.
    //   * R goes with the bytes, from the second half of the window on.
    //   * Linux forgets R with the next message that it sends, whatever that is about. So R is sent again after each
    //     message of the peer (message_came()).
    //   * Linux may have consumed everything before R arrives, and then reports nothing until it consumes more bytes.
    //     So a sixteenth of the memory is kept back for ask_again().
    // A peer whose whole ring is used reports its cursor without being asked, but not again if the link was lost that
    // carried the report. So kWholeRingProbes bytes are kept back for ask_again() there.
    Sending(std::uint32_t size, std::uint32_t window, bool cursor_is_told = false)
        : size_(size), memory_(window), window_(window), cursor_is_told_(cursor_is_told) {}
    // Changes the window. If more than that is in use already, there is no room until the peer has consumed it. True:
    // the peer is to be told, because it is asked for its cursor.
    bool set_window(std::uint32_t window);

    // True if the peer can have this consumer cursor. To be called before peer_consumed().
    [[nodiscard]] bool can_be(cdc::Cursor consumed) const;
    void peer_consumed(cdc::Cursor consumed);
    // To be called after peer_consumed(), if the peer has told something new. True: the peer is to be told, because it
    // is asked for its cursor once more.
    [[nodiscard]] bool message_came() const {
        return asks() && (produced_.flags & cdc::kCursorRequested) != 0 && used() >= usual();
    }

    enum class Room : std::uint8_t {
        kSome,    // there are room() bytes
        kFull,    // the peer has to consume first
        kUrgent,  // the peer has to consume an urgent byte first (F3)
    };
    [[nodiscard]] Room state() const;
    [[nodiscard]] std::uint32_t room() const { return limit() - std::min(limit(), used()); }
    // Everything that was sent has been consumed.
    [[nodiscard]] bool drained() const { return consumed_ == produced_.cursor; }

    // The window is full, and there is more to write. True if B is new: the peer is to be told.
    bool block();
    // There is nothing more to write, so nothing waits for room.
    void ended() { produced_.flags &= static_cast<std::uint8_t>(~cdc::kWriterBlocked); }
    // An urgent byte lies ahead. True: the peer is to be told.
    bool announce_urgent();
    // Asks for a consumer cursor (R).
    void request_cursor() { produced_.flags |= cdc::kCursorRequested; }
    // Asks a peer that has not moved its cursor for long. If the window is full, this makes room for one byte, which
    // goes with the request, as TCP probes a window of zero.
    void ask_again();
    // `bytes` <= room() were written at the producer cursor; `urgent`: it was one byte, the urgent one.
    void took(std::uint32_t bytes, bool urgent);

    // The cursor and flags to publish, without the connection's state flags.
    [[nodiscard]] const cdc::Producer& produced() const { return produced_; }
    [[nodiscard]] cdc::Cursor consumed() const { return consumed_; }
    [[nodiscard]] bool urgent_pending() const { return urgent_.pending(); }

 private:
    [[nodiscard]] std::uint32_t used() const { return cdc::distance(consumed_, produced_.cursor, size_); }
    [[nodiscard]] bool asks() const { return cursor_is_told_ && window_ < size_; }
    [[nodiscard]] std::uint32_t kept_back() const {
        const std::uint32_t most = memory_ < size_ ? memory_ : kWholeRingProbes;
        return cursor_is_told_ ? std::min(memory_ / 16, most) : 0;
    }
    [[nodiscard]] std::uint32_t usual() const { return std::min(window_, memory_ - kept_back()); }
    [[nodiscard]] std::uint32_t limit() const { return std::min(usual() + probes_, memory_); }

    std::uint32_t size_;
    std::uint32_t memory_;      // bytes to send from
    std::uint32_t window_;      // at most memory_
    std::uint32_t probes_ = 0;  // bytes beyond usual() that may be in use now
    bool cursor_is_told_;
    cdc::Producer produced_;
    cdc::Cursor consumed_;
    UrgentSend urgent_;
};

}  // namespace smc::flow
