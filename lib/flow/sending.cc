// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/flow/sending.h"

#include <utility>

namespace smc::flow {

bool UrgentSend::announce() {
    if (pending()) {
        return false;
    }
    state_ = state_ == State::kNone ? State::kPending : State::kOutstandingAndPending;
    return true;
}

void UrgentSend::took(bool urgent) {
    state_ = urgent ? State::kOutstanding : pending() ? State::kPending : State::kNone;
}

bool UrgentSend::outstanding() const {
    return state_ == State::kOutstanding || state_ == State::kOutstandingAndPending;
}

bool UrgentSend::pending() const {
    return state_ == State::kPending || state_ == State::kOutstandingAndPending;
}

std::uint8_t UrgentSend::flags() const {
    switch (state_) {
        case State::kNone:
            return 0;
        case State::kPending:
            return cdc::kUrgentPending;
        case State::kOutstanding:
        case State::kOutstandingAndPending:
            return cdc::kUrgentPending | cdc::kUrgentPresent;
    }
    return 0;
}

// D3, for cursors of either transport.
bool Sending::can_be(cdc::Cursor consumed) const {
    return cdc::is_sane(consumed_, consumed, size_) && cdc::is_sane(consumed, produced_.cursor, size_);
}

void Sending::peer_consumed(cdc::Cursor consumed) {
    if (std::exchange(consumed_, consumed) != consumed) {
        probes_ = 0;
    }
}

void Sending::ask_again() {
    request_cursor();
    if (cursor_is_told_ && room() == 0 && used() < memory_) {
        probes_ = used() - usual() + 1;
    }
}

Sending::Room Sending::state() const {
    if (urgent_.outstanding() && !drained()) {
        return Room::kUrgent;
    }
    return room() == 0 ? Room::kFull : Room::kSome;
}

bool Sending::set_window(std::uint32_t window) {
    window_ = window;
    probes_ = 0;
    if (!asks() || drained()) {
        return false;
    }
    request_cursor();
    return true;
}

bool Sending::block() {
    if ((produced_.flags & cdc::kWriterBlocked) != 0) {
        return false;
    }
    produced_.flags |= cdc::kWriterBlocked;
    if (asks()) {
        request_cursor();
    }
    return true;
}

bool Sending::announce_urgent() {
    if (!urgent_.announce()) {
        return false;
    }
    produced_.flags |= cdc::kUrgentPending;
    return true;
}

void Sending::took(std::uint32_t bytes, bool urgent) {
    produced_.cursor = cdc::advance(produced_.cursor, bytes, size_);
    urgent_.took(urgent);
    produced_.flags = urgent_.flags();
    const bool is_probe = cursor_is_told_ && used() > usual();
    if (is_probe || (asks() && used() > window_ / 2)) {
        request_cursor();
    }
}

}  // namespace smc::flow
