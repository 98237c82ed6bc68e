// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/flow/flow.h"

#include <utility>

namespace smc::flow {

namespace {

// How long bytes of a Linux peer may arrive behind its end flag: until its messages under way are acknowledged.
constexpr std::chrono::milliseconds kCorked{10};

}  // namespace

Flow::Flow(const Terms& terms)
    : sending_(terms.send_size, terms.window, terms.cursor_is_told),
      receiving_(terms.receive_size),
      cursor_is_told_(terms.cursor_is_told),
      close_timeout_(terms.close_timeout),
      reset_grace_(terms.reset_grace) {}

void Flow::leg_changed(const LegEvents& events) {
    if (reading_ != Reading::kEnded) {
        if (events.ending) {
            reading_ = Reading::kEnding;
        } else if (events.readable && reading_ == Reading::kQuiet) {
            reading_ = Reading::kReadable;
        }
        publish_ |= events.urgent && sending_.announce_urgent();
    }
    if (events.writable && writing_ == Writing::kFull) {
        writing_ = Writing::kWritable;
    }
    leg_failed_ |= events.failed;
    leg_was_reset_ |= events.reset;
}

Step Flow::next(TimePoint now, bool can_send) {
    for (;;) {
        if (std::exchange(publish_, false)) {  // F5
            cdc::Producer producer = sending_.produced();
            producer.state = close_.flags();
            return Publish{producer, std::exchange(written_, 0)};
        }
        if (end_) {
            return *end_;
        }
        if (std::exchange(consumed_, false)) {
            return Consumed{receiving_.consumed()};
        }
        std::optional<Step> step;
        switch (phase_) {
            case Phase::kLoad:
                moved_ = stuck_ = false;
                return Load{};
            case Phase::kReceive:
                step = receive(now);
                break;
            case Phase::kSend:
                step = send(can_send);
                break;
            case Phase::kPassDone:
                after_pass();
                break;
            case Phase::kLoadForClc:
                return Load{};
            case Phase::kClc:
                return LookAtClcSocket{};
            case Phase::kClose:
                phase_ = Phase::kSleep;
                step = advance_close(now);
                break;
            case Phase::kSleep:
                return Sleep{};
        }
        if (step) {
            return *step;
        }
    }
}

void Flow::peer(const PeerState& told) {
    PeerState state = told;
    // At a failover Linux sets its producer cursor back to that of the last message that it knows to have arrived. A
    // message that it sends before it repeats the later ones has that older cursor.
    if (cursor_is_told_ && receiving_.was(state.producer.cursor)) {
        state.producer.cursor = receiving_.produced().cursor;
    }
    close_.peer_flags(state.producer.state);
    if (close_.peer_aborted()) {
        if (receiving_.can_be(state.producer.cursor)) {  // F8
            receiving_.peer_produced(state.producer, state.urgent);
        }
        finish(Reason::kPeerAborted);
        return;
    }
    if (!receiving_.can_be(state.producer.cursor) || !sending_.can_be(state.consumer)) {
        abort(Reason::kBadCursor);
        return;
    }
    sending_.peer_consumed(state.consumer);
    PeerState said = state;
    said.message = 0;  // otherwise two peers that ask each other would answer repetitions for ever
    if (std::exchange(heard_, said) != said) {
        const bool asks = asked_for_all_ && !sending_.drained();  // Linux forgets R with each message that it sends
        publish_ |= (sending_.message_came() || asks) && !peer_is_closed();
    }
    receiving_.peer_produced(state.producer, state.urgent);
    phase_ = phase_ == Phase::kLoadForClc ? Phase::kClc : Phase::kReceive;
}

std::optional<Step> Flow::receive(TimePoint now) {
    look_for_corked(now);
    if (receiving_.available() != 0) {
        more_deadline_ = kNever;
        if (writing_ == Writing::kWritable) {
            return Deliver{receiving_.next()};
        }
        if (writing_ == Writing::kEnded && !leg_failed_) {
            abort(Reason::kLlcViolation);  // the application was told that this would not come (F2)
            return std::nullopt;
        }
    } else if (close_.peer_done() && writing_ != Writing::kEnded && writing_ != Writing::kBroken && !awaits_more(now)) {
        writing_ = Writing::kEnded;  // F2
        moved_ = true;
        phase_ = Phase::kSend;
        return EndLeg{};
    }
    phase_ = Phase::kSend;
    return std::nullopt;
}

// A peer that has ended its stream should send nothing more. But if a Linux process ends while its bytes wait for room,
// Linux sets the end flag in the message that says so (B), and sends the bytes when there is room. Its next message has
// no B, or more bytes. If the last bytes just fit, no such message comes.
bool Flow::awaits_more(TimePoint now) {
    const bool waits = (receiving_.produced().flags & cdc::kWriterBlocked) != 0 && reset_grace_.count() != 0;
    if (waits && more_deadline_ == kNever) {
        more_deadline_ = now + reset_grace_;
    }
    if (waits && now < more_deadline_) {
        return true;
    }
    more_deadline_ = kNever;
    return corked_deadline_ != kNever;
}

// From 5.18 on, bytes of a process that ends on Linux may also wait until messages before them are acknowledged
// (autocorking), and nothing tells of them. Linux then says that it has closed (C), and does not say before that it is
// done with sending (D), as agents do. They come soon, or not at all.
void Flow::look_for_corked(TimePoint now) {
    if (!says_closed_alone()) {
        corked_deadline_ = kNever;  // awaits_more() has another reason to wait, or none
        return;
    }
    if (corked_behind_ != receiving_.produced().cursor) {
        corked_behind_ = receiving_.produced().cursor;
        corked_deadline_ = now + kCorked;
    } else if (now >= corked_deadline_) {
        corked_deadline_ = kNever;
    }
}

bool Flow::says_closed_alone() const {
    const bool blocked = (receiving_.produced().flags & cdc::kWriterBlocked) != 0;
    return reset_grace_.count() != 0 && !blocked &&
           (close_.peer() & (cdc::kSendingDone | cdc::kConnectionClosed)) == cdc::kConnectionClosed;
}

// Whether bytes may be missing in front of the peer's end, as far as its flags tell.
bool Flow::may_lack_bytes() const {
    const bool blocked = reset_grace_.count() != 0 && (receiving_.produced().flags & cdc::kWriterBlocked) != 0;
    const bool corked =
        says_closed_alone() && (corked_behind_ != receiving_.produced().cursor || corked_deadline_ != kNever);
    return writing_ != Writing::kEnded && (blocked || corked);
}

void Flow::delivered(std::uint32_t bytes) {
    receiving_.delivered(bytes);  // F1
    consumed_ = true;
    moved_ = true;
    phase_ = Phase::kSend;
}

void Flow::leg_takes_nothing(bool took_error) {
    writing_ = Writing::kBroken;
    leg_failed_ = true;
    took_error_ |= took_error;
    if (reading_ != Reading::kEnded) {
        reading_ = Reading::kEnding;
    }
    phase_ = Phase::kSend;
}

void Flow::leg_full() {
    writing_ = Writing::kFull;
    phase_ = Phase::kSend;
}

std::optional<Step> Flow::send(bool can_send) {
    if (reading_ == Reading::kQuiet || reading_ == Reading::kEnded) {
        phase_ = Phase::kPassDone;
        return std::nullopt;
    }
    const Sending::Room room = sending_.state();
    if (room != Sending::Room::kSome && peer_is_closed()) {
        abort(Reason::kPeerClosedEarly);  // the peer will never make room (section 4.8.1)
        return std::nullopt;
    }
    if (room == Sending::Room::kSome && can_send) {
        return Take{sending_.produced().cursor, sending_.room()};
    }
    phase_ = Phase::kPassDone;
    if (room == Sending::Room::kFull && can_send && sending_.block()) {
        blocked_++;
        publish_ = true;
        moved_ = true;  // look again: the peer may have consumed before it saw the flag
        return std::nullopt;
    }
    stuck_ = room != Sending::Room::kSome;
    return room == Sending::Room::kUrgent || can_send ? std::nullopt : std::optional<Step>(WantRoom{});
}

void Flow::took(std::uint32_t bytes, bool urgent, bool drained) {
    if (peer_is_closed()) {
        abort(Reason::kPeerClosedEarly);  // the peer will never read this; TCP would answer with a reset
        return;
    }
    sending_.took(bytes, urgent);
    // Everything was read. An event tells of further bytes, but not again of an end or of an urgent byte.
    if (reading_ == Reading::kReadable && drained && !sending_.urgent_pending()) {
        reading_ = Reading::kQuiet;
    }
    written_ += bytes;
    publish_ = true;
    moved_ = true;
    phase_ = Phase::kPassDone;
}

void Flow::leg_empty() {
    if (writing_ == Writing::kBroken) {
        // The write failed on a socket that lives: no read will report that (a program in a sockmap refused the bytes,
        // for example).
        leg_broke();
        return;
    }
    if (reading_ == Reading::kReadable) {
        reading_ = Reading::kQuiet;
    }
    phase_ = Phase::kPassDone;
}

void Flow::leg_ended() {
    if (took_error_) {
        leg_broke();  // this end hides the error that a write has taken
        return;
    }
    reading_ = Reading::kEnded;
    close_.application_done();
    sending_.ended();
    publish_ = true;
    moved_ = true;
    phase_ = Phase::kPassDone;
}

void Flow::after_pass() {
    if (moved_) {
        phase_ = Phase::kLoad;
    } else {
        phase_ = std::exchange(clc_event_, false) ? Phase::kLoadForClc : Phase::kClose;
    }
}

void Flow::leg_drained(bool all, TimePoint now) {
    phase_ = Phase::kSleep;
    if (all) {
        // This side is done, whatever the application does with its socket; the peer waits for that (section 4.8.1).
        close_.application_done();
        close_.application_closed();
        publish_ = true;
        finish(Reason::kCloseTimeout);
    } else {
        close_deadline_ = now + close_timeout_;
    }
}

}  // namespace smc::flow
