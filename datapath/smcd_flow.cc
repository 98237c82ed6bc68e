// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/smcd_flow.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>

namespace smc {

namespace {

// Turns of one flow before the others get theirs.
constexpr int kStepsPerRun = 8;

// `bytes` from `at` on in a ring, as one or two pieces.
struct Pieces {
    iovec part[2];
    int count;
};

Pieces pieces(std::span<std::uint8_t> ring, std::uint32_t at, std::uint32_t bytes) {
    const auto first = std::min<std::size_t>(bytes, ring.size() - at);
    return {{{ring.data() + at, first}, {ring.data(), bytes - first}}, bytes > first ? 2 : 1};
}

void add(std::atomic<std::uint64_t>& counter, std::uint64_t n) {
    counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

}  // namespace

SmcdFlow::SmcdFlow(std::uint64_t id, std::shared_ptr<FlowStats> counters, Parts parts)
    : Flow(id, std::move(counters)), parts_(std::move(parts)) {
    for (int which = 0; which < 3; which++) {
        sources_[which] = {this, which};
    }
}

bool SmcdFlow::start(Poller& poller) {
    poller_ = &poller;
    return poller.watch(parts_.leg.fd(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI, sources_[kLeg]) &&
           poller.watch(parts_.wire.fd(), EPOLLIN | EPOLLRDHUP, sources_[kWire]) &&
           poller.watch(parts_.own->doorbell_fd(), EPOLLIN, sources_[kDoorbell]);
}

void SmcdFlow::on_event(int which, std::uint32_t events) {
    if (which == kWire) {
        wire_event_ = true;
    } else if (which == kLeg) {
        leg_readable_ |= (events & (EPOLLIN | EPOLLRDHUP | EPOLLPRI | EPOLLHUP | EPOLLERR)) != 0;
        leg_writable_ |= (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0;
        leg_failed_ |= (events & EPOLLERR) != 0;
        if ((events & EPOLLPRI) != 0 && !urgent_pending_ && !leg_ended_) {
            urgent_pending_ = true;
            produced_.flags |= cdc::kUrgentPending;
            publish_producer();
        }
    }
}

// Takes over what the peer published. False: it is nonsense, or the peer aborted; the flow has ended.
bool SmcdFlow::read_cdc() {
    const auto producer = cdc::unpack_producer(parts_.own->load_producer());
    const auto consumer = cdc::unpack_cursor(parts_.own->load_consumer());
    const auto rx_size = static_cast<std::uint32_t>(parts_.own->ring().size());
    const auto tx_size = static_cast<std::uint32_t>(parts_.peer.ring().size());

    close_.peer_flags(producer.state);
    if (close_.peer_aborted()) {
        finish(Reason::kPeerAborted);
        return false;
    }
    // New cursors must lie between what we knew and what the rings can hold.
    const bool sane = cdc::is_sane(consumed_, producer.cursor, rx_size) &&
                      cdc::is_sane(peer_consumed_, consumer, tx_size) &&
                      cdc::is_sane(consumer, produced_.cursor, tx_size) &&
                      cdc::distance(consumed_, producer.cursor, rx_size) >=
                          cdc::distance(consumed_, peer_produced_.cursor, rx_size);
    if (!sane) {
        abort(Reason::kBadCursor);
        return false;
    }
    peer_produced_ = producer;
    peer_consumed_ = consumer;
    return true;
}

void SmcdFlow::publish_producer() {
    produced_.state = close_.flags();
    parts_.peer.store_producer(cdc::pack(produced_));
    parts_.peer.ring_doorbell();
    add(stats->signals, 1);
}

void SmcdFlow::publish_consumer() {
    parts_.peer.store_consumer(cdc::pack(consumed_));
    // The store is free and always done; it wakes the peer only if the peer waits for it (RFC 7609 section
    // 4.5.1). The flags are read after the store: a writer that blocks sets B first, then looks at our
    // cursor.
    const auto flags = cdc::unpack_producer(parts_.own->load_producer()).flags;
    if ((flags & (cdc::kWriterBlocked | cdc::kUrgentPresent | cdc::kCursorRequested)) != 0) {
        parts_.peer.ring_doorbell();
    }
}

SmcdFlow::Step SmcdFlow::send_some() {
    if (leg_ended_ || !leg_readable_) {
        return Step::kIdle;
    }
    const auto ring = parts_.peer.ring();
    const auto size = static_cast<std::uint32_t>(ring.size());
    const std::uint32_t used = cdc::distance(peer_consumed_, produced_.cursor, size);
    if (urgent_outstanding_ && used != 0) {
        return Step::kStuck;  // F3
    }
    if (used == size) {
        if ((produced_.flags & cdc::kWriterBlocked) == 0) {
            produced_.flags |= cdc::kWriterBlocked;
            add(stats->blocked, 1);
            publish_producer();
            return Step::kMoved;  // look at the peer's cursor once more
        }
        return Step::kStuck;
    }
    // What is readable is asked before where the mark is: urgent data that arrives in between lies beyond,
    // and a read that begins at the mark would run across it. Nothing readable: one byte shows why.
    const std::uint32_t readable = std::max(parts_.leg.readable(), 1U);
    const bool urgent = parts_.leg.at_mark();
    auto to = pieces(ring, produced_.cursor.count, urgent ? 1 : std::min(size - used, readable));
    msghdr message{};
    message.msg_iov = to.part;
    message.msg_iovlen = static_cast<std::size_t>(to.count);
    const ssize_t n = ::recvmsg(parts_.leg.fd(), &message, MSG_DONTWAIT);
    if (n > 0) {
        produced_.cursor = cdc::advance(produced_.cursor, static_cast<std::uint32_t>(n), size);
        urgent_outstanding_ = urgent;
        urgent_pending_ = urgent_pending_ && !urgent;
        produced_.flags = urgent            ? cdc::kUrgentPending | cdc::kUrgentPresent
                          : urgent_pending_ ? cdc::kUrgentPending
                                            : 0;
        add(stats->bytes_sent, static_cast<std::uint64_t>(n));
        publish_producer();
        return Step::kMoved;
    }
    if (n == 0) {
        leg_ended_ = true;
        close_.application_done();
        publish_producer();
        return Step::kMoved;
    }
    if (errno == EAGAIN) {
        leg_readable_ = false;
        return Step::kIdle;
    }
    if (errno != EINTR) {
        abort(Reason::kApplicationReset);
    }
    return Step::kMoved;
}

SmcdFlow::Step SmcdFlow::deliver(std::uint32_t available, bool urgent) {
    // The urgent byte is the last one before the producer cursor and goes alone.
    const bool mark = urgent && available == 1;
    auto from = pieces(parts_.own->ring(), consumed_.count, urgent && !mark ? available - 1 : available);
    msghdr message{};
    message.msg_iov = from.part;
    message.msg_iovlen = static_cast<std::size_t>(from.count);
    const ssize_t n =
        ::sendmsg(parts_.leg.fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL | (mark ? MSG_OOB : 0));
    if (n > 0) {
        consumed_ = cdc::advance(
            consumed_, static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(parts_.own->ring().size()));
        add(stats->bytes_received, static_cast<std::uint64_t>(n));
        publish_consumer();
        return Step::kMoved;
    }
    if (errno == EAGAIN) {
        leg_writable_ = false;
        return Step::kStuck;
    }
    if (errno != EINTR) {
        abort(Reason::kApplicationReset);
    }
    return Step::kMoved;
}

SmcdFlow::Step SmcdFlow::receive_some() {
    const auto size = static_cast<std::uint32_t>(parts_.own->ring().size());
    const std::uint32_t available = cdc::distance(consumed_, peer_produced_.cursor, size);
    if (available != 0) {
        return leg_writable_ ? deliver(available, (peer_produced_.flags & cdc::kUrgentPresent) != 0)
                             : Step::kStuck;
    }
    if (close_.peer_done() && !end_delivered_) {
        end_delivered_ = true;  // F2
        parts_.leg.end_writing();
        return Step::kMoved;
    }
    return Step::kIdle;
}

// F4. The peer stores its last flags before it closes the TCP connection, so look at them first.
void SmcdFlow::check_wire() {
    wire_event_ = false;
    if (!read_cdc()) {
        return;
    }
    char byte = 0;
    const ssize_t n = ::recv(parts_.wire.fd(), &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    wire_ended_ = n <= 0;
    if (close_.state() == CloseMachine::State::kClosed ||
        (n == 0 && (peer_produced_.state & cdc::kConnectionClosed) != 0)) {
        return;
    }
    abort(n > 0 ? Reason::kProtocolError : Reason::kWireReset);
}

void SmcdFlow::advance_close(TimePoint now) {
    if (leg_ended_ && end_delivered_ && (close_.flags() & cdc::kConnectionClosed) == 0) {
        close_.application_closed();
        publish_producer();
        close_deadline_ = now + parts_.close_timeout;
    }
    stats->state.store(name(close_.state()), std::memory_order_relaxed);
    if (close_.state() == CloseMachine::State::kClosed) {
        // The one who ended first closes the TCP connection first; the other follows its FIN.
        if (close_.active() || wire_ended_ || now >= close_deadline_) {
            finish(Reason::kNone);
        }
    } else if (now >= close_deadline_) {
        if (peer_consumed_ == produced_.cursor) {
            abort(Reason::kCloseTimeout);
        } else {
            close_deadline_ = now + parts_.close_timeout;  // its application still reads; nothing is owed yet
        }
    }
}

bool SmcdFlow::run(TimePoint now) {
    for (int step = 0; step < kStepsPerRun && !ended_; step++) {
        if (!read_cdc()) {
            return false;
        }
        const Step received = receive_some();
        if (ended_) {
            return false;
        }
        const Step sent = send_some();
        if (ended_) {
            return false;
        }
        if (received == Step::kMoved || sent == Step::kMoved) {
            continue;
        }
        if (wire_event_) {
            check_wire();
        }
        if (!ended_ && leg_failed_ && (leg_ended_ || sent == Step::kStuck)) {
            abort(Reason::kApplicationReset);  // reading would not tell: behind its FIN, or not possible now
        }
        if (!ended_) {
            advance_close(now);
        }
        if (ended_) {
            return false;
        }
        // Nothing to do: arm the doorbell, and sleep only if nothing was published meanwhile.
        parts_.own->arm();
        if (cdc::unpack_producer(parts_.own->load_producer()) == peer_produced_ &&
            cdc::unpack_cursor(parts_.own->load_consumer()) == peer_consumed_) {
            return false;
        }
    }
    return !ended_;
}

void SmcdFlow::abort(Reason reason) {
    if (ended_) {
        return;
    }
    close_.application_aborted();
    publish_producer();
    finish(reason);
}

void SmcdFlow::finish(Reason reason) {
    if (ended_) {
        return;
    }
    ended_ = true;
    end_reason_ = reason;
    if (poller_ != nullptr) {
        poller_->unwatch(parts_.own->doorbell_fd());
    }
    if (reason == Reason::kNone) {
        parts_.leg.close();
        parts_.wire.close();
        return;
    }
    if (reason == Reason::kPeerAborted) {
        publish_producer();  // answers A with A (figure 23, 2B)
    }
    parts_.leg.reset();
    parts_.wire.reset();
}

bool SmcdFlow::ended(FlowEnd& end) const {
    if (ended_) {
        end = {id(), end_reason_};
    }
    return ended_;
}

}  // namespace smc
