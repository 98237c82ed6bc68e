// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/smc_connection.h"

#include <sys/epoll.h>

#include "datapath/counter.h"

namespace smc {

namespace {

// How often a run() looks at the peer, and about how many bytes it moves, before other connections get their turn. With
// fewer bytes the peer is woken more often: a quarter as many cost a quarter of the throughput on one processor.
constexpr int kLooksPerRun = 8;
constexpr std::uint32_t kBytesPerRun = 256 * 1024;
// The same while a request-response connection is active: each of its messages waits for one run() of a stream at each
// end.
constexpr std::uint32_t kBytesPerShortRun = 16 * 1024;
// A run() that moved no more than this moved a request or a response: was_interactive().
constexpr std::uint32_t kLittle = 4 * 1024;
// A connection that has just moved more than this is a stream: its next bytes are many, and can wait for a wake-up.
constexpr std::uint32_t kSmall = 16 * 1024;

constexpr std::chrono::milliseconds kLongestAskPause = std::chrono::minutes(1);
constexpr std::chrono::milliseconds kOptionsAfter = std::chrono::seconds(1);  // see set_late_options()

// An application that has set SO_SNDBUF relies on being blocked by it, so no more bytes than that wait for the peer.
std::uint32_t window_of(const SmcConnection::Parts& parts) {
    const std::uint32_t window = parts.transport->window();
    const std::uint64_t chosen = parts.send_buffer ? parts.send_buffer->load(std::memory_order_relaxed) : 0;
    return chosen != 0 ? static_cast<std::uint32_t>(std::min<std::uint64_t>(window, chosen)) : window;
}

flow::Flow::Terms terms_of(const SmcConnection::Parts& parts) {
    return {parts.transport->send_size(),
            parts.transport->window(),
            static_cast<std::uint32_t>(parts.transport->receive_ring().size()),
            !parts.transport->reads_peer_memory(),
            parts.close_timeout,
            parts.transport->reads_peer_memory() ? std::chrono::milliseconds(0) : parts.reset_grace};
}

flow::LegEvents leg_events(std::uint32_t events) {
    const auto any = [&](std::uint32_t wanted) { return (events & wanted) != 0; };
    return {.readable = any(EPOLLIN | EPOLLRDHUP | EPOLLPRI | EPOLLHUP | EPOLLERR),
            .writable = any(EPOLLOUT | EPOLLHUP | EPOLLERR),
            .urgent = any(EPOLLPRI),
            .ending = any(EPOLLRDHUP | EPOLLHUP | EPOLLERR),
            .failed = any(EPOLLERR)};
}

}  // namespace

SmcConnection::SmcConnection(std::uint64_t id, std::shared_ptr<ConnectionStats> counters, Parts parts)
    : ConnectionTask(id, std::move(counters)), parts_(std::move(parts)), flow_(terms_of(parts_)) {
    for (int which = 0; which < 3; which++) {
        sources_[which] = {this, which};
    }
    if (parts_.announces) {
        flow_.speak();
    }
}

bool SmcConnection::start(Poller& poller) {
    poller_ = &poller;
    // The transport first: if something fails after that, the peer can be told. If its link has gone already, the
    // application still gets what has arrived (F8), and the CLC socket is reset by now.
    return parts_.transport->start(poller, sources_[kTransport]) &&
           (ended() || (parts_.leg->start(poller, sources_[kLeg]) &&
                        (final_delivery_ || parts_.clc->start(poller, sources_[kClc]))));
}

bool SmcConnection::detach() {
    if (ended() || final_delivery_ || !parts_.transport->detach()) {
        return false;
    }
    parts_.leg->detach();
    parts_.clc->detach();
    woken_ = may_have_news_ =
        true;  // the peer may have published something without an event, because look() would have seen it
    return true;
}

void SmcConnection::on_event(int which, std::uint32_t events) {
    woken_ = true;
    if (which == kClc) {
        if (final_delivery_) {
            return;  // the CLC socket is closed
        }
        flow_.clc_changed();
        may_have_news_ = true;  // the peer may have published its last flags without an event so far
    } else if (which == kLeg) {
        parts_.leg->heard((events & EPOLLIN) != 0, (events & EPOLLPRI) != 0);
        flow::LegEvents changed = leg_events(events);
        changed.reset = changed.failed && parts_.leg->was_reset();
        if (!std::exchange(leg_was_heard_, true) && !changed.readable) {
            flow_.leg_begins_empty();
        }
        flow_.leg_changed(changed);
        if (final_delivery_ && parts_.leg->has_more()) {
            final_delivery_->application_wrote();
        }
    } else {
        parts_.transport->woken();
        armed_ = false;
        may_have_news_ = true;
    }
}

bool SmcConnection::look() {
    if (final_delivery_ || parts_.transport->news_since() == kNever) {
        return false;
    }
    woken_ = may_have_news_ = true;
    return true;
}

bool SmcConnection::run(TimePoint now) {
    bool more = false;
    if (!ended() && !final_delivery_ && !parts_.transport->is_valid()) {
        abort(Reason::kPeerReset);
    } else if (!ended() && !final_delivery_ && peer_is_gone.load(std::memory_order_relaxed)) {
        flow_.peer(parts_.transport->peer());  // F8: the peer may have died before it rang the doorbell
        abort(Reason::kPeerReset);
    }
    if (!ended() && !final_delivery_) {
        wake_up(now);
        follow_send_buffer();
        more = drive_flow(now);
        if (moved_ >= kBytesPerShortRun) {
            poller_->was_bulk(*this);
        } else if (moved_ != 0 && moved_ <= kLittle) {
            poller_->was_interactive(*this);
        }
        more |= look_for_idleness(now);
        set_late_options(now);
        pass_keepalive_on();
    }
    if (!ended() && final_delivery_) {
        continue_final_delivery(now);
        more = false;
    }
    show();
    return more;
}

void SmcConnection::follow_send_buffer() {
    if (const std::uint32_t window = window_of(parts_); window != window_) {
        window_ = window;
        flow_.set_window(window);
    }
}

bool SmcConnection::drive_flow(TimePoint now) {
    moved_ = 0;
    bytes_per_run_ = poller_->short_quantum(now) ? kBytesPerShortRun : kBytesPerRun;
    for (int looks = 0;;) {
        const flow::Step step = flow_.next(now, parts_.transport->can_send());
        if (std::holds_alternative<flow::Load>(step)) {
            if (looks++ == kLooksPerRun || moved_ >= bytes_per_run_) {
                return true;
            }
            load();
        } else if (const auto* deliver_step = std::get_if<flow::Deliver>(&step)) {
            if (!parts_.transport->is_valid()) {
                abort(Reason::kPeerReset);
                return false;
            }
            deliver(deliver_step->piece);
        } else if (const auto* take_step = std::get_if<flow::Take>(&step)) {
            if (!parts_.transport->is_valid()) {
                abort(Reason::kPeerReset);
                return false;
            }
            take(*take_step);
        } else if (const auto* publish = std::get_if<flow::Publish>(&step)) {
            parts_.transport->publish(publish->producer, publish->written);
            add(stats->signals);
        } else if (const auto* consumed = std::get_if<flow::Consumed>(&step)) {
            parts_.transport->consumed(consumed->cursor);
        } else if (std::holds_alternative<flow::EndLeg>(step)) {
            parts_.leg->end_writing();
        } else if (std::holds_alternative<flow::WantRoom>(step)) {
            parts_.transport->want_room();
        } else if (std::holds_alternative<flow::CheckLegDrained>(step)) {
            flow_.leg_drained(parts_.leg->unsent() == 0, now);
        } else if (std::holds_alternative<flow::LookAtClcSocket>(step)) {
            look_at_clc_socket();
        } else if (std::holds_alternative<flow::Sleep>(step)) {
            flow_.slept();
            sleep(now);
            return false;
        } else if (const auto* end = std::get_if<flow::End>(&step)) {
            finish(*end);
            return false;
        }
    }
}

void SmcConnection::sleep(TimePoint now) {
    if (!std::exchange(sleeps_, true)) {
        pause_ = next_pause_;
        const bool may = parts_.transport->reads_peer_memory() && moved_ <= kSmall;
        const auto time = may ? spin_[pause_].before_sleep(now, poller_->longest_spin(now)) : Spin::Time{};
        spins_ = time.count() > 0;
        if (spins_) {
            const bool of_peer = pause_ == kOfPeer && parts_.transport->can_look();
            poller_->spin(*this, now + time, of_peer ? Poller::Expects::kMemory : Poller::Expects::kEvents);
        }
    }
    if (spins_ && parts_.transport->can_look()) {
        if (std::exchange(armed_, false)) {
            parts_.transport->disarm();
        }
    } else if (!std::exchange(armed_, true)) {
        parts_.transport->arm();
        if (parts_.transport->news_since() != kNever) {
            poller_->spin(*this, now, Poller::Expects::kEvents);  // look() will see it, in its place among all news
        }
    }
}

void SmcConnection::wake_up(TimePoint now) {
    const bool woken = std::exchange(woken_, false);
    if (std::exchange(spins_, false) && !woken) {
        return;  // still asleep, but no longer busy-polled
    }
    if (std::exchange(sleeps_, false)) {
        spin_[pause_].woken(now);
    }
}

// True: there is something to publish, so another run() is needed.
bool SmcConnection::look_for_idleness(TimePoint now) {
    if (idle_check_ == kNever) {
        idle_check_ = moved_ != 0 ? now + parts_.idle : kNever;
    } else if (now >= idle_check_) {
        const std::uint64_t sent = stats->bytes_sent.load(std::memory_order_relaxed);
        waits_ = !flow_.sending().drained();
        const bool idle = sent == std::exchange(sent_at_check_, sent) && flow_.sending().drained();
        idle_check_ = idle ? kNever : now + parts_.idle;
        if (ended() || final_delivery_) {
            return false;
        }
        if (idle) {
            parts_.transport->idle();
        }
        return waits_ && !parts_.transport->reads_peer_memory() && ask_stalled_reader(now);
    }
    return false;
}

// Most connections end before these options matter, so they are spared the system calls.
void SmcConnection::set_late_options(TimePoint now) {
    if (ended() || final_delivery_ || (clc_kept_ && !leg_ended_)) {
        options_at_ = kNever;
    } else if (options_at_ == kNever) {
        options_at_ = now + kOptionsAfter;
    } else if (now >= options_at_) {
        options_at_ = kNever;
        if (!std::exchange(clc_kept_, true)) {
            parts_.clc->keep_alive();
        }
        if (std::exchange(leg_ended_, false)) {
            parts_.leg->look_for_its_end();
        }
    }
}

// If a peer has consumed nothing for a while, its application may just not read. But after changes of links, Linux
// peers have stalled with an answer that they had written and did not send until another message came: a message that
// asks for the peer's cursor makes them send it. A peer that has consumed everything without saying so says it when it
// consumes the byte that goes with the request. The pauses between requests grow, for applications that do not read.
bool SmcConnection::ask_stalled_reader(TimePoint now) {
    const std::uint64_t consumed = cdc::pack(flow_.sending().consumed());
    if (std::exchange(consumed_at_check_, consumed) != consumed) {
        ask_pause_ = parts_.idle;
        ask_at_ = now;
        return false;
    }
    if (now < ask_at_) {
        return false;
    }
    ask_at_ = now + ask_pause_;
    ask_pause_ = std::min(2 * ask_pause_, kLongestAskPause);
    flow_.ask_for_cursor();
    return true;
}

void SmcConnection::pass_keepalive_on() {
    if (ended() || final_delivery_) {
        return;
    }
    const auto wish = keepalive.take();
    if (wish || waits_ != waited_) {
        passed_on_ = wish.value_or(passed_on_);
        waited_ = waits_;
        clc_kept_ = true;
        parts_.clc->keep_alive();
        parts_.clc->use_keepalive(passed_on_, waited_);
    }
}

void SmcConnection::load() {
    seen_ = news();
    parts_.transport->flush();
    flow_.peer(seen_);
}

// Data that was sent first must be readable first, even on two different connections. So new data in the ring, although
// it is visible at once, is taken only after its event, in the order of all tasks' events (the peer has rung the
// doorbell, or will), or after look() has seen it, which Task::news_since() sorts into that order. But a stream, which
// has just moved many bytes, takes all that is there, because otherwise it would be woken for each piece.
flow::PeerState SmcConnection::news() {
    if (std::exchange(may_have_news_, false)) {
        parts_.transport->arm();
        armed_ = true;
    } else if (parts_.transport->reads_peer_memory() && moved_ <= kSmall) {
        flow::PeerState known = seen_;
        known.consumer = parts_.transport->peer().consumer;
        return known;
    }
    parts_.transport->taking_news();
    return parts_.transport->peer();
}

void SmcConnection::deliver(const flow::Receiving::Piece& piece) {
    const Pieces from = pieces(parts_.transport->receive_ring(), piece.at.count, std::min(piece.bytes, bytes_per_run_));
    const auto written = parts_.leg->write(from, piece.urgent);
    switch (written.outcome) {
        case Leg::Outcome::kBytes:
            stats->tap.add(false, from, written.bytes);
            add(stats->bytes_received, written.bytes);
            moved_ += written.bytes;
            next_pause_ = kOfApplication;
            return flow_.delivered(written.bytes);
        case Leg::Outcome::kNothing:
            return flow_.leg_full();
        case Leg::Outcome::kEnd:
        case Leg::Outcome::kError:
            return flow_.leg_takes_nothing(written.took_error);
        case Leg::Outcome::kInterrupted:
            return;
    }
}

void SmcConnection::take(const flow::Take& take) {
    const Pieces to = parts_.transport->space(take.at, std::min(take.bytes, bytes_per_run_));
    const auto read = parts_.leg->read(to);
    switch (read.outcome) {
        case Leg::Outcome::kBytes:
            stats->tap.add(true, to, read.bytes);
            flow_.took(read.bytes, read.urgent, read.drained);
            moved_ += read.bytes;
            next_pause_ = kOfPeer;
            if (!flow_.ended()) {
                add(stats->bytes_sent, read.bytes);
            }
            return;
        case Leg::Outcome::kNothing:
            return flow_.leg_empty();
        case Leg::Outcome::kEnd:
            leg_ended_ = true;
            return flow_.leg_ended();
        case Leg::Outcome::kError:
            return flow_.leg_broke();
        case Leg::Outcome::kInterrupted:
            return;
    }
}

void SmcConnection::look_at_clc_socket() {
    switch (parts_.clc->look()) {
        case ClcSocket::State::kQuiet:
            return flow_.clc_quiet();
        case ClcSocket::State::kData:
            return flow_.clc_data();
        case ClcSocket::State::kEnded:
            return flow_.clc_has_ended();
        case ClcSocket::State::kReset:
            return flow_.clc_reset();
    }
}

void SmcConnection::show() const {
    const auto relaxed = std::memory_order_relaxed;
    stats->blocked.store(flow_.blocked(), relaxed);
    stats->state.store(name(flow_.close_state()), relaxed);
    stats->rx_producer.store(cdc::pack(flow_.receiving().produced()), relaxed);
    stats->rx_consumer.store(cdc::pack(flow_.receiving().consumed()), relaxed);
    stats->tx_producer.store(cdc::pack(flow_.sending().produced()), relaxed);
    stats->tx_consumer.store(cdc::pack(flow_.sending().consumed()), relaxed);
}

}  // namespace smc
