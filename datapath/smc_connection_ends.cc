// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How a connection over SMC ends.
#include "datapath/smc_connection.h"

namespace smc {

void SmcConnection::abort(Reason reason) {
    if (ended()) {
        return;
    }
    if (final_delivery_) {
        return reset(end_reason_ == Reason::kNone ? reason : end_reason_);
    }
    if (reason == Reason::kLinkDown || reason == Reason::kDataLost || reason == Reason::kRmbeTakenAgain) {
        flow_.peer(parts_.transport->peer());  // F8: what the peer published last may not have been read yet
    }
    if (reason != Reason::kRmbeTakenAgain) {
        flow_.abort(reason);
    } else if (!flow_.ring_taken()) {
        return;
    }
    drive_flow({});  // publishes the abort and ends; deadlines do not matter any more
    show();
}

void SmcConnection::finish(const flow::End& end) {
    using How = flow::End::How;
    How how = end.how;
    if (how == How::kDeliver) {
        final_delivery_.emplace(flow_.receiving(), parts_.transport->receive_ring(), end, parts_.close_timeout);
        if (parts_.leg->has_more() || !flow_.sending().drained()) {
            final_delivery_->application_wrote();
        }
        end_reason_ = end.reason;
        if (!parts_.transport->receive_ring_is_valid()) {  // asked after the copy: it may have been lost meanwhile
            final_delivery_.reset();
            how = How::kReset;
        }
    }
    parts_.transport->stop();
    if (how == How::kDeliver) {
        parts_.clc->reset();  // the next run() continues with final_delivery_
    } else if (how == How::kReset) {
        reset(end.reason);
    } else {
        // A reset after the peer's FIN spares the peer a TIME_WAIT with its application's address and port.
        if (parts_.peer_has_agent && flow_.clc_ended()) {
            parts_.clc->reset();
        } else {
            parts_.clc->close();
        }
        close_leg(end.reason);
    }
}

// An application that has ended its own stream may read late. The leg's packets need the BPF programs, and so the
// agent, until its kernel has all that was written.
void SmcConnection::close_leg(Reason reason) {
    if (parts_.leg->unsent() != 0) {
        end_reason_ = reason;
        final_delivery_.emplace(flow_.receiving(), parts_.transport->receive_ring(),
                                flow::End{.reason = reason, .peer_done = true}, parts_.close_timeout);
    } else if (set_ended(reason)) {
        parts_.leg->close();
    }
}

void SmcConnection::reset(Reason reason) {
    if (set_ended(reason)) {
        parts_.leg->reset();
        parts_.clc->reset();
    }
}

void SmcConnection::continue_final_delivery(TimePoint now) {
    if (!final_delivery_->run(*parts_.leg, *stats, now)) {
        return;
    }
    // The link or the peer's agent has failed, and the application has lost nothing. So it hears of it only when it
    // writes, as of a peer that has closed.
    if (end_reason_ != Reason::kPeerAborted && final_delivery_->ended_in_order() && set_ended(end_reason_)) {
        parts_.leg->close();
        parts_.clc->reset();
    } else {
        reset(end_reason_);
    }
}

}  // namespace smc
