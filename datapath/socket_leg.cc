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

// The first `bytes` of them.
Pieces shortened(Pieces pieces, std::size_t bytes) {
    pieces.part[0].iov_len = std::min(pieces.part[0].iov_len, bytes);
    pieces.part[1].iov_len = std::min(pieces.part[1].iov_len, bytes - pieces.part[0].iov_len);
    return pieces;
}

std::size_t room(const Pieces& pieces) {
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

// The kernel ends a read before a mark, but not behind one that it begins at. Where there is data, and no mark in front
// of it, a mark that comes lies behind that data. poll() alone is no proof: it looks for the two one after the other.
// What follows a full read is not known.
Leg::Read SocketLeg::read(Pieces to) {
    if (!std::exchange(next_is_plain_, false) || socket_.at_mark()) {
        return read_carefully(to);
    }
    msghdr message = message_of(to);
    const ssize_t n = ::recvmsg(socket_.fd(), &message, MSG_DONTWAIT);
    if (n > 0) {
        const auto bytes = static_cast<std::uint32_t>(n);
        return {Outcome::kBytes, bytes, false, bytes < room(to)};
    }
    return {n == 0 ? Outcome::kEnd : outcome_of(errno)};
}

Leg::Read SocketLeg::read_carefully(Pieces to) {
    std::uint32_t queued = socket_.readable();
    if (queued == 0) {
        // Or it says so for a socket that somebody has in a sockmap: then only looking tells how much there is.
        Pieces all = to;
        msghdr message = message_of(all);
        const ssize_t n = ::recvmsg(socket_.fd(), &message, MSG_DONTWAIT | MSG_PEEK);
        if (n <= 0) {
            return {n == 0 ? Outcome::kEnd : outcome_of(errno)};
        }
        const auto there = static_cast<std::uint32_t>(n);
        queued = std::max(socket_.readable(), there < room(to) ? there : there + 1);
    }
    // Asked before where the mark is: urgent data that arrives in between lies beyond, and a read that begins at the
    // mark would run across it.
    const bool urgent = socket_.at_mark();
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
    return n > 0 ? Written{Outcome::kBytes, static_cast<std::uint32_t>(n)} : Written{outcome_of(errno)};
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
