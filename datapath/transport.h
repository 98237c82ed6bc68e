// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Port: the two rings of an SMC connection as the data path sees them: the peer's ring, into which it sends, and its
// own, from which it delivers. Shared memory and queue pairs are hidden behind it. Const functions send nothing.
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

    // From now on the task is told, by events of this source or by Poller::ready(), when the peer has published
    // something or there is room. False: out of memory or watches.
    virtual bool start(Poller& poller, Poller::Source& source) = 0;
    // An event of that source has come. Called before anything else is done about it.
    virtual void woken() {}
    // Ends these events. Everything published before is still sent; nothing more will be published.
    virtual void stop() = 0;
    // Ends these events until start() is called again, with another engine's poller. False: the transport belongs to
    // one engine, and nothing has changed.
    virtual bool detach() { return false; }

    // Size of the peer's ring in bytes, and how many of these bytes may be in use at once.
    [[nodiscard]] virtual std::uint32_t send_size() const = 0;
    [[nodiscard]] virtual std::uint32_t window() const = 0;
    [[nodiscard]] virtual std::span<std::uint8_t> receive_ring() const = 0;

    // The state that the peer published last.
    [[nodiscard]] virtual flow::PeerState peer() const = 0;
    // Whether peer() may be newer than the last event: it reads memory that the peer writes.
    [[nodiscard]] virtual bool reads_peer_memory() const { return false; }
    // Asks for an event when the peer publishes something. Called before peer() or news_since(), so that nothing is
    // missed in between.
    virtual void arm() {}
    // Whether news_since() shows what the peer publishes: then a task that is busy-polled needs no event.
    [[nodiscard]] virtual bool can_look() const { return false; }
    // Withdraws arm(), to spare the peer the event, where can_look(). An event may still come.
    virtual void disarm() {}
    // When the peer published the first of what came since taking_news(); kNever: nothing came, or it is not known.
    [[nodiscard]] virtual TimePoint news_since() const { return kNever; }
    // To be called before peer(), if the caller then takes everything that peer() shows.
    virtual void taking_news() {}

    // False: the way to the peer is busy at the moment. want_room() then asks for a run() when there is room.
    [[nodiscard]] virtual bool can_send() const = 0;
    virtual void want_room() = 0;
    // Memory for up to `bytes` that go to `at` in the peer's ring. The next publish() sends them.
    [[nodiscard]] virtual Pieces space(cdc::Cursor at, std::uint32_t bytes) const = 0;
    // The producer cursor moved on by `written` bytes (can_send() was true if there are any), or flags or state
    // changed.
    virtual void publish(const cdc::Producer& producer, std::uint32_t written) = 0;
    // The consumer cursor moved. The transport decides when to tell the peer (RFC 7609 section 4.5.1).
    virtual void consumed(cdc::Cursor cursor) = 0;
    // False: the memory of a ring has been given to another owner, and must not be read or written any more.
    [[nodiscard]] virtual bool is_valid() const { return true; }
    // False: that is so for receive_ring(), so the bytes there may be another connection's.
    [[nodiscard]] virtual bool receive_ring_is_valid() const { return true; }
    // Called when nothing has been sent for a while and the peer has consumed everything.
    virtual void idle() {}
    // Sends messages that are due and had no room before, or for which the peer has asked since.
    virtual void flush() = 0;
};

}  // namespace smc
