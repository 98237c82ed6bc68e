// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/flow/close_machine.h"

namespace smc::flow {

using State = CloseMachine::State;

void CloseMachine::application_done() {
    if (state_ == State::kActive) {
        flags_ |= cdc::kSendingDone;
        active_ = true;
        state_ = State::kPeerCloseWait1;
    } else if (state_ == State::kAppCloseWait1) {
        flags_ |= cdc::kSendingDone;
        state_ = State::kAppCloseWait2;
    }
}

void CloseMachine::application_closed() {
    if (state_ == State::kPeerAbortWait || state_ == State::kClosed) {
        return;
    }
    flags_ |= cdc::kConnectionClosed;
    if ((peer_ & cdc::kConnectionClosed) != 0) {
        state_ = State::kClosed;
    } else if (state_ == State::kAppCloseWait2) {
        state_ = State::kPeerFinCloseWait;
    }
}

void CloseMachine::application_aborted() {
    if (state_ != State::kClosed) {
        flags_ |= cdc::kAbnormalClose;
        state_ = State::kPeerAbortWait;
    }
}

void CloseMachine::peer_flags(std::uint8_t flags) {
    peer_ |= flags;
    if (state_ == State::kClosed) {
        return;
    }
    if (peer_aborted()) {
        flags_ |= cdc::kAbnormalClose;
        state_ = State::kClosed;
        return;
    }
    if (state_ == State::kPeerAbortWait) {
        return;
    }
    if ((peer_ & cdc::kConnectionClosed) != 0) {
        if ((flags_ & cdc::kConnectionClosed) != 0) {
            state_ = State::kClosed;
        } else if (state_ == State::kActive) {
            state_ = State::kAppCloseWait1;
        } else if (state_ == State::kPeerCloseWait1 || state_ == State::kPeerCloseWait2) {
            state_ = State::kAppFinCloseWait;
        }
    } else if ((peer_ & cdc::kSendingDone) != 0) {
        if (state_ == State::kActive) {
            state_ = State::kAppCloseWait1;
        } else if (state_ == State::kPeerCloseWait1) {
            state_ = State::kPeerCloseWait2;
        }
    }
}

const char* name(State state) {
    switch (state) {
        case State::kActive:
            return "ACTIVE";
        case State::kPeerCloseWait1:
            return "PEERCLW1";
        case State::kPeerCloseWait2:
            return "PEERCLW2";
        case State::kAppCloseWait1:
            return "APPLCLW1";
        case State::kAppCloseWait2:
            return "APPLCLW2";
        case State::kAppFinCloseWait:
            return "APPLFINCLW";
        case State::kPeerFinCloseWait:
            return "PEERFINCLW";
        case State::kPeerAbortWait:
            return "PEERABORTW";
        case State::kClosed:
            return "CLOSED";
    }
    return "?";
}

}  // namespace smc::flow
