// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/socket_leg.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace smc {

namespace {

Leg::Outcome outcome_of(int error) {
    return error == EAGAIN  ? Leg::Outcome::kNothing
           : error == EINTR ? Leg::Outcome::kInterrupted
                            : Leg::Outcome::kError;
}

// The first `bytes` bytes of `pieces`.
Pieces shortened(Pieces pieces, std::size_t bytes) {
    pieces.part[0].iov_len = std::min(pieces.part[0].iov_len, bytes);
    pieces.part[1].iov_len = std::min(pieces.part[1].iov_len, bytes - pieces.part[0].iov_len);
    return pieces;
}

std::size_t length_of(const Pieces& pieces) {
    return pieces.part[0].iov_len + (pieces.count > 1 ? pieces.part[1].iov_len : 0);
}

msghdr message_of(Pieces& pieces) {
    msghdr message{};
    message.msg_iov = pieces.part;
    message.msg_iovlen = static_cast<std::size_t>(pieces.count);
    return message;
}

}  // namespace

bool SocketLeg::start(Poller& poller, Poller::Source& source) {
    return socket_.watch(poller, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI, source);
}

// The kernel ends a read at the urgent mark, but a read that begins at the mark runs across it. A plain read is safe if
// there is data and no mark in front of it: a mark that arrives later lies after that data. The event alone does not
// prove this, because poll() checks for data and for the mark one after the other: at_mark() does. After a read that
// fills `to` it is unknown whether more follows.
Leg::Read SocketLeg::read(Pieces to) {
    if (!std::exchange(next_is_plain_, false) || at_mark()) {
        return read_carefully(to);
    }
    msghdr message = message_of(to);
    const ssize_t n = ::recvmsg(socket_.fd(), &message, MSG_DONTWAIT);
    if (n > 0) {
        const auto bytes = static_cast<std::uint32_t>(n);
        return {Outcome::kBytes, bytes, false, bytes < length_of(to)};
    }
    return {n == 0 ? Outcome::kEnd : outcome_of(errno)};
}

// Called when it is known that there is data. If that began with an urgent byte, urgent_ would have been set before it
// came.
bool SocketLeg::at_mark() const {
    return (urgent_ == nullptr || urgent_->load(std::memory_order_relaxed) != 0) && socket_.at_mark();
}

Leg::Read SocketLeg::read_carefully(Pieces to) {
    std::uint32_t queued = socket_.readable();
    if (queued == 0) {
        // Either there is nothing, or the socket is in a sockmap, where SIOCINQ may report 0: then only MSG_PEEK tells
        // how much there is.
        Pieces all = to;
        msghdr message = message_of(all);
        const ssize_t n = ::recvmsg(socket_.fd(), &message, MSG_DONTWAIT | MSG_PEEK);
        if (n <= 0) {
            return {n == 0 ? Outcome::kEnd : outcome_of(errno)};
        }
        const auto there = static_cast<std::uint32_t>(n);
        queued = std::max(socket_.readable(), there < length_of(to) ? there : there + 1);
    }
    // Asked only after `queued` is known: urgent data that arrives in between lies beyond `queued`. In the other order
    // the read might begin at its mark, and run across it.
    const bool urgent = at_mark();
    to = shortened(to, urgent ? 1 : queued);
    msghdr message = message_of(to);
    const ssize_t n = ::recvmsg(socket_.fd(), &message, MSG_DONTWAIT);
    if (n > 0) {
        const auto bytes = static_cast<std::uint32_t>(n);
        return {Outcome::kBytes, bytes, urgent, bytes >= queued};
    }
    return {n == 0 ? Outcome::kEnd : outcome_of(errno)};
}

Leg::Written SocketLeg::write(Pieces from, bool urgent) {
    const msghdr message = message_of(from);
    const ssize_t n = ::sendmsg(socket_.fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL | (urgent ? MSG_OOB : 0));
    if (n > 0) {
        return {Outcome::kBytes, static_cast<std::uint32_t>(n)};
    }
    // EPIPE: a reset behind the end of the application's stream, which is still read; or the error was taken before.
    const Outcome outcome = outcome_of(errno);
    return {outcome, 0, outcome == Outcome::kError && errno != EPIPE};
}

bool SocketClc::start(Poller& poller, Poller::Source& source) {
    return socket_.watch(poller, EPOLLIN | EPOLLRDHUP, source);
}

ClcSocket::State SocketClc::look() const {
    char byte = 0;
    const ssize_t n = ::recv(socket_.fd(), &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    if (n < 0) {
        return errno == EAGAIN || errno == EINTR ? State::kQuiet : State::kReset;
    }
    return n == 0 ? State::kEnded : State::kData;
}

}  // namespace smc
