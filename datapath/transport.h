// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Port: the two rings of an SMC connection as the data path sees them, the peer's, into which it sends, and the own
// one, from which it delivers. What is between the peers (shared memory, queue pairs) is behind it. Queries change
// nothing; what sends says so.
#pragma once

#include <cstdint>
#include <span>

#include "datapath/pieces.h"
#include "datapath/task.h"
#include "smc/flow/receiving.h"
#include "smc/wire/cdc.h"

namespace smc {

class Transport {
 public:
    virtual ~Transport() = default;

    // From now on the task hears under this source, or by Poller::ready(), that the peer published something or that
    // there is room. False: out of memory or watches.
    virtual bool start(Poller& poller, Poller::Source& source) = 0;
    // An event of that source came. Before anything else.
    virtual void woken() {}
    // Nothing more is heard. What was published is still on its way; of more there will be none.
    virtual void stop() = 0;

    // Bytes of the peer's ring, and how many of them may be in use at once.
    [[nodiscard]] virtual std::uint32_t send_size() const = 0;
    [[nodiscard]] virtual std::uint32_t window() const = 0;
    [[nodiscard]] virtual std::span<std::uint8_t> receive_ring() const = 0;

    // What the peer published last.
    [[nodiscard]] virtual flow::PeerState peer() const = 0;
    // Whether peer() has news before the task has heard of them: it is memory that the peer writes.
    [[nodiscard]] virtual bool is_ahead() const { return false; }
    // From here on the task hears of what the peer publishes: to be called before peer(), or something is missed.
    virtual void arm() {}

    // False: not now, the way to the peer is busy. want_room() then asks for a run when it is not.
    [[nodiscard]] virtual bool can_send() const = 0;
    virtual void want_room() = 0;
    // Where to put up to `bytes` that go to `at` in the peer's ring. The next publish() sends them.
    [[nodiscard]] virtual Pieces space(cdc::Cursor at, std::uint32_t bytes) const = 0;
    // The producer cursor moved on by `written` bytes (can_send() was true if there are any), or flags or state
    // changed.
    virtual void publish(const cdc::Producer& producer, std::uint32_t written) = 0;
    // The consumer cursor moved. When the peer hears of it is the transport's to decide (RFC 7609 section 4.5.1).
    virtual void consumed(cdc::Cursor cursor) = 0;
    // False: its memory has become somebody else's. Nothing is to be read from it or written any more.
    [[nodiscard]] virtual bool stands() const { return true; }
    // Nothing has been sent for a while, and the peer has consumed everything.
    virtual void idle() {}
    // Sends what is due and had no room before, or what the peer asked for since.
    virtual void flush() = 0;
};

}  // namespace smc
