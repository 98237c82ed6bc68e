// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How a flow ends: by both sides, by a reset, or by what becomes of the CLC socket.
#include <utility>

#include "smc/flow/flow.h"

namespace smc::flow {

// F4.
void Flow::clc_data() {
    phase_ = Phase::kClose;
    if (close_.state() != CloseMachine::State::kClosed) {
        abort(Reason::kProtocolError);
    }
}

void Flow::clc_has_ended() {
    phase_ = Phase::kClose;
    clc_ended_ = true;
}

void Flow::clc_reset() {
    clc_has_ended();
    if (close_.state() == CloseMachine::State::kClosed || all_is_said()) {
        return;
    }
    if (reset_grace_.count() == 0) {
        abort(Reason::kPeerReset);
    } else if (!std::exchange(clc_reset_, true)) {
        clc_deadline_ = kNever;  // await_flags() sets it anew: the reset grace instead of the close timeout of a FIN
    }
}

std::optional<Step> Flow::advance_close(TimePoint now) {
    if (leg_failed_ && (reading_ == Reading::kEnded || stuck_)) {
        // The leg failed, and no read will report that: its FIN was read already, or there is no room to read into. An
        // application that has gone after its FIN withdraws nothing: the peer gets all that it wrote, however late. But
        // if data was lost with the application, or still comes for it, the connection aborts after that.
        // If both streams have ended, there is nothing left to reset.
        const bool reset = leg_was_reset_ && writing_ != Writing::kEnded;
        if (reading_ != Reading::kEnded || receiving_.available() != 0 || (reset && sending_.drained())) {
            abort(Reason::kApplicationReset);
            return std::nullopt;
        }
        if (!reset) {
            writing_ = Writing::kEnded;
            more_deadline_ = kNever;
        } else if (!std::exchange(asked_for_all_, true)) {
            sending_.request_cursor();
            publish_ = true;
            phase_ = Phase::kLoad;  // the peer may have consumed before it saw the flag
            return std::nullopt;
        }
    }
    const bool ended = reading_ == Reading::kEnded;
    if (ended && writing_ == Writing::kEnded && (close_.flags() & cdc::kConnectionClosed) == 0) {
        close_.application_closed();
        publish_ = true;
        close_deadline_ = now + close_timeout_;
    }
    // The peer has closed, and its end was passed on. Our application may keep its socket for ever.
    if (!ended && writing_ == Writing::kEnded && peer_is_closed() && close_deadline_ == kNever) {
        close_deadline_ = now + close_timeout_;
    }
    if (close_.state() == CloseMachine::State::kClosed) {
        // The side whose application ended first closes the TCP connection first; the other side follows its FIN.
        if (close_.active() || clc_ended_ || now >= close_deadline_) {
            finish(Reason::kNone);
        }
    } else if (now >= close_deadline_ && !sending_.drained()) {
        // The peer's application still reads, so the peer owes no flags yet. A peer whose ring has much room tells its
        // cursor only when it is asked; Linux tells it when it consumes the next byte.
        close_deadline_ = now + close_timeout_;
        sending_.request_cursor();
        publish_ = true;
    } else if (now >= close_deadline_ && !ended) {
        phase_ = Phase::kClose;
        return CheckLegDrained{};  // what the application's kernel does not have yet would be lost with the leg
    } else if (now >= close_deadline_) {
        // Everything was delivered both ways; the peer's application only keeps its socket.
        finish(Reason::kCloseTimeout);
        return std::nullopt;
    }
    await_flags(now);
    return std::nullopt;
}

// One application has closed, and the other side has all that it wrote: a FIN or a reset tells nothing more.
bool Flow::all_is_said() const {
    return peer_is_closed() || ((close_.flags() & cdc::kConnectionClosed) != 0 && sending_.drained());
}

// F4: the CLC socket has ended by a FIN or a reset, and the peer's flags do not explain it yet.
void Flow::await_flags(TimePoint now) {
    if (!clc_ended_ || (close_.peer_done() && !clc_reset_) || all_is_said()) {
        clc_deadline_ = kNever;
    } else if (clc_deadline_ == kNever) {
        clc_deadline_ = now + (clc_reset_ ? reset_grace_ : close_timeout_);
    } else if (now >= clc_deadline_) {
        abort(Reason::kPeerReset);
    }
}

void Flow::abort(Reason reason) {
    if (!end_) {
        close_.application_aborted();
        publish_ = true;
        finish(reason);
    }
}

bool Flow::ring_taken() {
    if ((close_.flags() & cdc::kConnectionClosed) != 0) {
        return false;
    }
    written_ = 0;
    abort(Reason::kRmbeTakenAgain);
    return true;
}

void Flow::finish(Reason reason) {
    if (end_) {
        return;
    }
    if (reason == Reason::kPeerAborted) {
        publish_ = true;  // answers A with A (figure 23, 2B)
    }
    const bool deliver = reason == Reason::kPeerAborted || reason == Reason::kPeerReset ||
                         reason == Reason::kLinkDown || reason == Reason::kDataLost ||
                         reason == Reason::kPeerClosedEarly || reason == Reason::kRmbeTakenAgain;  // F8
    const bool orderly = reason == Reason::kNone || reason == Reason::kCloseTimeout;
    const bool whole = reason != Reason::kDataLost && !may_lack_bytes();  // see C4
    end_ = End{reason,
               orderly   ? End::How::kOrderly
               : deliver ? End::How::kDeliver
                         : End::How::kReset,
               close_.peer_done() && whole};
}

}  // namespace smc::flow
