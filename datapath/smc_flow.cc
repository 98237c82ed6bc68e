// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/smc_flow.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>

namespace smc {

namespace {

// Turns of one flow before the others get theirs.
constexpr int kStepsPerRun = 8;

void add(std::atomic<std::uint64_t>& counter, std::uint64_t n) {
    counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

}  // namespace

SmcFlow::SmcFlow(std::uint64_t id, std::shared_ptr<FlowStats> counters, Parts parts)
    : Flow(id, std::move(counters)), parts_(std::move(parts)) {
    for (int which = 0; which < 3; which++) {
        sources_[which] = {this, which};
    }
}

bool SmcFlow::start(Poller& poller) {
    // The transport first: whatever fails after it, the peer is told.
    return parts_.transport->start(poller, sources_[kTransport]) &&
           (ended() || (poller.watch(parts_.leg.fd(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI, sources_[kLeg]) &&
                        poller.watch(parts_.wire.fd(), EPOLLIN | EPOLLRDHUP, sources_[kWire])));
}

void SmcFlow::on_event(int which, std::uint32_t events) {
    if (which == kWire) {
        wire_event_ = true;
    } else if (which == kLeg) {
        leg_readable_ |= (events & (EPOLLIN | EPOLLRDHUP | EPOLLPRI | EPOLLHUP | EPOLLERR)) != 0;
        leg_ending_ |= (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
        leg_writable_ |= (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0;
        leg_failed_ |= (events & EPOLLERR) != 0;
        if ((events & EPOLLPRI) != 0 && !urgent_pending_ && !leg_ended_) {
            urgent_pending_ = true;
            produced_.flags |= cdc::kUrgentPending;
            publish();
        }
    }
}

// Takes over what the peer published. False: it is nonsense, or the peer aborted; the flow has ended.
bool SmcFlow::read_peer() {
    const PeerState peer = parts_.transport->load();
    const auto rx_size = static_cast<std::uint32_t>(parts_.transport->receive_ring().size());
    const std::uint32_t tx_size = parts_.transport->send_size();

    close_.peer_flags(peer.producer.state);
    if (close_.peer_aborted()) {
        finish(Reason::kPeerAborted);
        return false;
    }
    // New cursors must lie between what we knew and what the rings can hold.
    const bool sane = cdc::is_sane(consumed_, peer.producer.cursor, rx_size) &&
                      cdc::is_sane(peer_consumed_, peer.consumer, tx_size) &&
                      cdc::is_sane(peer.consumer, produced_.cursor, tx_size) &&
                      cdc::distance(consumed_, peer.producer.cursor, rx_size) >=
                          cdc::distance(consumed_, peer_produced_.cursor, rx_size);
    if (!sane) {
        abort(Reason::kBadCursor);
        return false;
    }
    peer_produced_ = peer.producer;
    peer_consumed_ = peer.consumer;
    note_urgent(peer.urgent, rx_size);
    return true;
}

// A mark that was consumed already, or that lies nowhere, is none.
void SmcFlow::note_urgent(std::optional<cdc::Cursor> mark, std::uint32_t size) {
    if (mark && mark->count < size) {
        const std::uint32_t ahead = cdc::distance(consumed_, *mark, size);
        if (ahead > 0 && ahead <= cdc::distance(consumed_, peer_produced_.cursor, size)) {
            urgent_at_ = mark;
        }
    }
}

void SmcFlow::publish(std::uint32_t written) {
    produced_.state = close_.flags();
    parts_.transport->publish(produced_, written);
    add(stats->signals, 1);
}

SmcFlow::Step SmcFlow::send_some() {
    if (leg_ended_ || !leg_readable_) {
        return Step::kIdle;
    }
    const std::uint32_t size = parts_.transport->send_size();
    const std::uint32_t window = parts_.transport->window();
    const std::uint32_t used = cdc::distance(peer_consumed_, produced_.cursor, size);
    if ((urgent_outstanding_ && used != 0) || !parts_.transport->can_send()) {
        return Step::kStuck;  // F3
    }
    if (used == window) {
        if ((produced_.flags & cdc::kWriterBlocked) == 0) {
            produced_.flags |= cdc::kWriterBlocked;
            add(stats->blocked, 1);
            publish();
            return Step::kMoved;  // look at the peer's cursor once more
        }
        return Step::kStuck;
    }
    // What is readable is asked before where the mark is: urgent data that arrives in between lies beyond,
    // and a read that begins at the mark would run across it. Nothing readable: one byte shows why.
    const std::uint32_t queued = parts_.leg.readable();
    const std::uint32_t readable = std::max(queued, 1U);
    const bool urgent = parts_.leg.at_mark();
    auto to = parts_.transport->space(produced_.cursor, urgent ? 1 : std::min(window - used, readable));
    msghdr message{};
    message.msg_iov = to.part;
    message.msg_iovlen = static_cast<std::size_t>(to.count);
    const ssize_t n = ::recvmsg(parts_.leg.fd(), &message, MSG_DONTWAIT);
    if (n > 0 && (close_.peer() & cdc::kConnectionClosed) != 0) {
        abort(Reason::kPeerClosedEarly);  // it will never read this; TCP would answer with a reset
        return Step::kMoved;
    }
    if (n > 0) {
        // All that was there: the descriptor tells of more, but it has told of an end already.
        leg_readable_ = leg_ending_ || urgent_pending_ || static_cast<std::uint32_t>(n) < queued;
        produced_.cursor = cdc::advance(produced_.cursor, static_cast<std::uint32_t>(n), size);
        urgent_outstanding_ = urgent;
        urgent_pending_ = urgent_pending_ && !urgent;
        produced_.flags = urgent            ? cdc::kUrgentPending | cdc::kUrgentPresent
                          : urgent_pending_ ? cdc::kUrgentPending
                                            : 0;
        add(stats->bytes_sent, static_cast<std::uint64_t>(n));
        publish(static_cast<std::uint32_t>(n));
        return Step::kMoved;
    }
    if (n == 0) {
        leg_ended_ = true;
        close_.application_done();
        publish();
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

SmcFlow::Step SmcFlow::deliver(std::uint32_t available) {
    const auto ring = parts_.transport->receive_ring();
    const auto size = static_cast<std::uint32_t>(ring.size());
    // The urgent byte goes alone, as the last one before the mark.
    const std::uint32_t to_mark = urgent_at_ ? cdc::distance(consumed_, *urgent_at_, size) : 0;
    const bool mark = to_mark == 1;
    auto from = pieces(ring, consumed_.count, mark ? 1 : to_mark != 0 ? to_mark - 1 : available);
    msghdr message{};
    message.msg_iov = from.part;
    message.msg_iovlen = static_cast<std::size_t>(from.count);
    const ssize_t n = ::sendmsg(parts_.leg.fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL | (mark ? MSG_OOB : 0));
    if (n > 0) {
        consumed_ = cdc::advance(consumed_, static_cast<std::uint32_t>(n), size);
        if (mark) {
            urgent_at_.reset();
        }
        add(stats->bytes_received, static_cast<std::uint64_t>(n));
        parts_.transport->consumed(consumed_);
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

SmcFlow::Step SmcFlow::receive_some() {
    const auto size = static_cast<std::uint32_t>(parts_.transport->receive_ring().size());
    const std::uint32_t available = cdc::distance(consumed_, peer_produced_.cursor, size);
    if (available != 0) {
        return leg_writable_ ? deliver(available) : Step::kStuck;
    }
    if (close_.peer_done() && !end_delivered_) {
        end_delivered_ = true;  // F2
        parts_.leg.end_writing();
        return Step::kMoved;
    }
    return Step::kIdle;
}

// F4.
void SmcFlow::check_wire() {
    wire_event_ = false;
    if (!read_peer()) {
        return;
    }
    char byte = 0;
    const ssize_t n = ::recv(parts_.wire.fd(), &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    wire_ended_ = n <= 0;
    if (close_.state() != CloseMachine::State::kClosed && n != 0) {
        abort(n > 0 ? Reason::kProtocolError : Reason::kWireReset);
    }
}

void SmcFlow::advance_close(TimePoint now) {
    if (leg_ended_ && end_delivered_ && (close_.flags() & cdc::kConnectionClosed) == 0) {
        close_.application_closed();
        publish();
        close_deadline_ = now + parts_.close_timeout;
    }
    stats->state.store(name(close_.state()), std::memory_order_relaxed);
    stats->rx_producer.store(cdc::pack(peer_produced_), std::memory_order_relaxed);
    stats->rx_consumer.store(cdc::pack(consumed_), std::memory_order_relaxed);
    stats->tx_producer.store(cdc::pack(produced_), std::memory_order_relaxed);
    stats->tx_consumer.store(cdc::pack(peer_consumed_), std::memory_order_relaxed);
    if (close_.state() == CloseMachine::State::kClosed) {
        // The one who ended first closes the TCP connection first; the other follows its FIN.
        if (close_.active() || wire_ended_ || now >= close_deadline_) {
            finish(Reason::kNone);
        }
    } else if (now >= close_deadline_) {
        if (peer_consumed_ == produced_.cursor) {
            finish(Reason::kCloseTimeout);  // everything was delivered both ways; its application only keeps the socket
            return;
        }
        // Its application still reads; nothing is owed yet. A peer with room to spare says how far it is when asked.
        close_deadline_ = now + parts_.close_timeout;
        produced_.flags |= cdc::kCursorRequested;
        publish();
    }
    // F4: a FIN that nothing has announced yet.
    const bool unannounced = wire_ended_ && !close_.peer_done();
    if (!unannounced) {
        wire_deadline_ = TimePoint::max();
    } else if (wire_deadline_ == TimePoint::max()) {
        wire_deadline_ = now + parts_.close_timeout;
    } else if (now >= wire_deadline_) {
        abort(Reason::kWireReset);
    }
}

bool SmcFlow::run(TimePoint now) {
    for (int step = 0; step < kStepsPerRun && !ended(); step++) {
        if (!read_peer()) {
            return false;
        }
        const Step received = receive_some();
        if (ended()) {
            return false;
        }
        const Step sent = send_some();
        if (ended()) {
            return false;
        }
        if (received == Step::kMoved || sent == Step::kMoved) {
            continue;
        }
        if (wire_event_) {
            check_wire();
        }
        if (!ended() && leg_failed_ && (leg_ended_ || sent == Step::kStuck)) {
            abort(Reason::kApplicationReset);  // reading would not tell: behind its FIN, or not possible now
        }
        if (!ended()) {
            advance_close(now);
        }
        if (ended()) {
            return false;
        }
        // Nothing to do; sleep only if nothing was published meanwhile.
        if (!parts_.transport->arm()) {
            return false;
        }
    }
    return !ended();
}

void SmcFlow::abort(Reason reason) {
    if (ended()) {
        return;
    }
    close_.application_aborted();
    publish();
    finish(reason);
}

void SmcFlow::finish(Reason reason) {
    if (!set_ended(reason)) {
        return;
    }
    if (reason == Reason::kPeerAborted) {
        publish();  // answers A with A (figure 23, 2B)
    }
    parts_.transport->stop();
    if (reason == Reason::kNone || reason == Reason::kCloseTimeout) {
        parts_.leg.close();
        parts_.wire.close();
        return;
    }
    parts_.leg.reset();
    parts_.wire.reset();
}

}  // namespace smc
