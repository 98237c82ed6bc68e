// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/spliced_connection.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "datapath/counter.h"

namespace smc {

namespace {
constexpr int kStepsPerRun = 8;
// A run() that moved no more than kFew moved a request or a response; one that moved kMany, part of a stream.
constexpr std::uint64_t kFew = 4 * 1024, kMany = 16 * 1024;
// Between two checks whether a side has read everything; kCalmPause is for a side that may take its time.
constexpr auto kPause = std::chrono::milliseconds(10), kCalmPause = std::chrono::milliseconds(1000);
// A pipe's default capacity. Larger pipes count against a user's limits (pipe-user-pages-soft, pipe-max-size).
constexpr std::size_t kPipeBytes = std::size_t{64} * 1024;
}  // namespace

SplicedConnection::SplicedConnection(std::uint64_t id, std::shared_ptr<ConnectionStats> counters, TcpSocket leg,
                                     TcpSocket server, std::chrono::milliseconds close_timeout, bool watches_for_clc)
    : ConnectionTask(id, std::move(counters)),
      leg_(std::move(leg)),
      clc_(std::move(server)),
      close_timeout_(close_timeout),
      watches_for_clc_(watches_for_clc) {
    directions_[0].from = directions_[1].to = &leg_;
    directions_[0].to = directions_[1].from = &clc_;
    sources_[0] = {this, 0};
    sources_[1] = {this, 1};
}

bool SplicedConnection::start(Poller& poller) {
    poller_ = &poller;
    for (auto& direction : directions_) {
        int ends[2];
        if (direction.pipe_in) {
            continue;  // started before, in another engine
        }
        if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
            return false;
        }
        direction.pipe_out.reset(ends[0]);
        direction.pipe_in.reset(ends[1]);
    }
    constexpr std::uint32_t kEvents = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI;
    return leg_.watch(poller, kEvents, sources_[0]) && clc_.watch(poller, kEvents, sources_[1]);
}

bool SplicedConnection::detach() {
    if (ended()) {
        return false;
    }
    leg_.unwatch();
    clc_.unwatch();
    return true;
}

void SplicedConnection::on_event(int which, std::uint32_t events) {
    const bool failed = (events & (EPOLLHUP | EPOLLERR)) != 0;
    directions_[which].readable |= failed || (events & (EPOLLIN | EPOLLRDHUP | EPOLLPRI)) != 0;
    directions_[1 - which].writable |= failed || (events & EPOLLOUT) != 0;
    failed_[which] |= (events & EPOLLERR) != 0;
}

SplicedConnection::Step SplicedConnection::fill(Direction& c) {
    if (c.ended || c.failed || !c.readable || c.held != 0) {
        return Step::kIdle;
    }
    if (c.from == &clc_ && watches_for_clc_) {
        return fill_first(c);
    }
    // splice() does not get past urgent data, so recv() and send() pass that byte on, as urgent.
    const bool urgent = c.from->at_mark();
    ssize_t n = 0;
    if (urgent) {
        n = ::recv(c.from->fd(), &c.urgent_byte, 1, MSG_DONTWAIT);
    } else {
        n = ::splice(c.from->fd(), nullptr, c.pipe_in.get(), nullptr, kPipeBytes, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
    }
    if (n > 0) {
        c.held = static_cast<std::size_t>(n);
        c.urgent = urgent;
        return Step::kMoved;
    }
    if (n == 0) {
        if (!urgent && c.from->at_mark()) {
            return Step::kMoved;  // an urgent byte and the end arrived together, after the first at_mark()
        }
        const int side = c.from == &leg_ ? 0 : 1;
        if (took_error_[side]) {
            c.failed = true;  // a write has reported the reset, so this read returns an end in its place
            fail(side);
            return Step::kMoved;
        }
        if (failed_[side]) {
            fail(side);  // behind the end of its stream
        }
        c.ended = true;
        if (c.from == &leg_) {
            leg_.probe_if_closed();  // a FIN does not show whether the application has closed its socket
        }
        return Step::kMoved;
    }
    const int side = c.from == &leg_ ? 0 : 1;
    if (errno == EAGAIN) {
        if (c.from->at_mark()) {
            return Step::kIdle;
        }
        return found_nothing(c);
    }
    if (errno != EINTR) {
        c.failed = true;
        fail(side);
    }
    return Step::kMoved;
}

// A socket that answers so lives. If a write to it has failed, no read will report that: a program in a sockmap has
// refused the bytes, for example.
SplicedConnection::Step SplicedConnection::found_nothing(Direction& c) {
    const int side = c.from == &leg_ ? 0 : 1;
    c.readable = false;
    if (!failed_[side]) {
        return Step::kIdle;
    }
    c.failed = true;
    fail(side);
    return Step::kMoved;
}

// Ends the connection if the peer's first four bytes are an eye catcher of CLC. Other bytes go on to the application,
// and what follows is spliced.
SplicedConnection::Step SplicedConnection::fill_first(Direction& c) {
    static constexpr std::string_view kSmcR = "\xe2\xd4\xc3\xd9", kSmcD = "\xe2\xd4\xc3\xc4";
    char piece[kSmcR.size()];
    const ssize_t n = c.from->at_mark() ? 0 : ::recv(c.from->fd(), piece, sizeof piece - first_.size(), MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) {
        return found_nothing(c);
    }
    if (n < 0 && errno != EINTR) {
        c.failed = true;
        fail(1);
        return Step::kMoved;
    }
    first_.append(piece, static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    if (first_ == kSmcR || first_ == kSmcD) {
        finish(Reason::kProtocolError);
        return Step::kMoved;
    }
    if (n == 0 || !(kSmcR.starts_with(first_) || kSmcD.starts_with(first_))) {
        watches_for_clc_ = false;
        if (!first_.empty() &&
            ::write(c.pipe_in.get(), first_.data(), first_.size()) != static_cast<ssize_t>(first_.size())) {
            finish(Reason::kLimit);  // the pipe is empty, so memory is short
            return Step::kMoved;
        }
        c.held = first_.size();
    }
    return Step::kMoved;
}

SplicedConnection::Step SplicedConnection::drain(Direction& c, std::atomic<std::uint64_t>& counter) {
    if (c.held == 0) {
        if (c.ended && !c.delivered) {
            c.delivered = true;
            c.to->end_writing();
            return Step::kMoved;
        }
        return Step::kIdle;
    }
    if (!c.writable) {
        return Step::kIdle;
    }
    ssize_t n = 0;
    if (c.urgent) {
        n = ::send(c.to->fd(), &c.urgent_byte, 1, MSG_OOB | MSG_DONTWAIT | MSG_NOSIGNAL);
    } else {
        n = ::splice(c.pipe_out.get(), nullptr, c.to->fd(), nullptr, c.held, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
    }
    if (n > 0) {
        c.held -= static_cast<std::size_t>(n);
        add(counter, static_cast<std::uint64_t>(n));
        return Step::kMoved;
    }
    if (n < 0 && errno == EAGAIN) {
        c.writable = false;
        return Step::kIdle;
    }
    if (n < 0 && errno != EINTR) {
        const int side = c.to == &leg_ ? 0 : 1;
        c.useless = true;
        c.held = 0;
        failed_[side] = true;
        directions_[side].readable = true;    // what that side sent before is still read, and then its failure
        took_error_[side] |= errno != EPIPE;  // EPIPE: its stream had ended before, and the end is still read, too
        if (broken_ || directions_[side].ended || directions_[side].useless) {
            fail(side);  // nothing will be read from that side, which would report the failure
        }
    }
    return Step::kMoved;
}

bool SplicedConnection::run(TimePoint now) {
    if (const auto wish = keepalive.take(); wish && !ended()) {
        clc_.use_keepalive(*wish);
    }
    const auto carried = [this] { return stats->bytes_sent.load() + stats->bytes_received.load(); };
    const std::uint64_t before = carried();
    const bool more = move_all(now);
    if (const std::uint64_t moved = carried() - before; moved >= kMany) {
        poller_->was_bulk(*this);
    } else if (moved != 0 && moved <= kFew) {
        poller_->was_interactive(*this);
    }
    return more;
}

bool SplicedConnection::move_all(TimePoint now) {
    const int steps = poller_->short_quantum(now) ? 1 : kStepsPerRun;
    for (int step = 0; step < steps && !ended() && !broken_; step++) {
        const bool moved = move();
        if (broken_) {
            break;
        }
        if (directions_[0].delivered && directions_[1].delivered) {
            close_when_read(now);
            return false;
        }
        if (!moved) {
            look_for_failure();
            break;
        }
        if (step + 1 == steps) {
            return true;
        }
    }
    if (broken_ && !ended()) {
        end_behind_what_was_sent(now);
    }
    return false;
}

// An application that has ended its own stream may read late. The leg's packets need the BPF programs, and so the
// agent, until its kernel has all that was written.
void SplicedConnection::close_when_read(TimePoint now) {
    if (leg_.unsent() != 0) {
        next_look_ = now + (next_look_ == kNever ? kPause : kCalmPause);
    } else {
        finish(Reason::kNone);
    }
}

void SplicedConnection::fail(int side) {
    const bool both = broken_ && *broken_ != side;
    broken_ = broken_.value_or(side);
    if (both) {
        finish(*broken_ == 0 ? Reason::kApplicationReset : Reason::kPeerReset);
    }
}

void SplicedConnection::end_behind_what_was_sent(TimePoint now) {
    Direction& last = directions_[*broken_];
    auto& counter = *broken_ == 0 ? stats->bytes_sent : stats->bytes_received;
    // The bytes that the kernel had received before the failure can still be read.
    while (!last.useless && !ended() &&
           ((last.held != 0 && drain(last, counter) == Step::kMoved) || fill(last) == Step::kMoved)) {
    }
    if (ended()) {
        return;
    }
    if (last.ended && last.held == 0 && !last.useless && !std::exchange(last.delivered, true)) {
        last.to->end_writing();
    }
    // Everything in front of an end belongs to the other side. If that side writes, it has to hear of the failure.
    const std::size_t unread = last.ended || last.failed ? 0 : last.from->readable();
    const std::size_t left = unread + last.held + last.to->unsent();
    const bool reads = left < std::exchange(undelivered_, std::min(undelivered_, left));
    if ((until_ == kNever || reads) && (!last.ended || last.to->readable() != 0)) {
        until_ = now + close_timeout_;
    }
    next_look_ = now + (until_ == kNever ? kCalmPause : kPause);
    if (last.useless || left == 0 || now >= until_) {
        finish(*broken_ == 0 ? Reason::kApplicationReset : Reason::kPeerReset);
    }
}

bool SplicedConnection::move() {
    bool moved = false;
    for (int i = 0; i < 2 && !broken_; i++) {
        if (directions_[i].useless) {
            continue;
        }
        moved |= fill(directions_[i]) == Step::kMoved;
        if (!broken_) {
            moved |= drain(directions_[i], i == 0 ? stats->bytes_sent : stats->bytes_received) == Step::kMoved;
        }
    }
    return moved;
}

void SplicedConnection::look_for_failure() {
    for (int side = 0; side < 2; side++) {
        if (is_gone(side)) {
            if (directions_[side].delivered) {
                finish(Reason::kNone);
            }
            return;
        }
    }
    for (int i = 0; i < 2; i++) {
        if (failed_[i] && (directions_[i].ended || directions_[i].held != 0)) {
            return fail(i);
        }
    }
}

void SplicedConnection::abort(Reason reason) {
    finish(reason);
}

void SplicedConnection::finish(Reason reason) {
    if (!set_ended(reason)) {
        return;
    }
    if (reason == Reason::kNone) {
        leg_.close();
        clc_.close();
    } else {
        leg_.reset();
        clc_.reset();
    }
}

}  // namespace smc
