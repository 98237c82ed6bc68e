// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/smcr/rmbe_transport.h"

#include <algorithm>
#include <array>

namespace smc::smcr {

namespace {

constexpr std::uint32_t kRequestsPerPublish = flow::Staging::kMaxWrites + 1;  // the writes and the message
// For local checking only (section 4.4.1): "SMCR" in EBCDIC.
constexpr std::array<std::uint8_t, cdc::kEyeCatcherBytes> kEyeCatcher{0xe2, 0xd4, 0xc3, 0xd9};

// F7: the window is never larger than the send element.
std::uint32_t window_of(const RmbeTransport::Parts& parts, std::uint32_t base) {
    return std::min(parts.peer.bytes - base, static_cast<std::uint32_t>(parts.send.bytes().size()));
}

}  // namespace

RmbeTransport::RmbeTransport(Parts parts)
    : parts_(std::move(parts)),
      base_(parts_.eye_catchers ? cdc::kEyeCatcherBytes : 0),
      staging_(window_of(parts_, base_), send_size()),
      outbox_(parts_.peer.token, static_cast<std::uint32_t>(receive_ring().size()), base_) {
    if (parts_.eye_catchers) {
        std::ranges::copy(kEyeCatcher, parts_.own.bytes().begin());
    }
}

bool RmbeTransport::start(Poller& poller, Poller::Source& source) {
    task_ = source.task;
    parts_.group->settle(poller);  // G5: ends the connection that has written to the peer's RMBE before
    receiver_ = parts_.group->attach(parts_.token, *task_, *this, base_);
    const bool usable = receiver_ != nullptr && !receiver_->is_reassigned && use(parts_.group->pick(parts_.peer.link));
    if (receiver_ != nullptr && receiver_->lost) {
        task_->abort(Reason::kDataLost);  // tells the peer over the link, if that is usable
    } else if (!usable) {
        task_->abort(Reason::kLinkDown);
    }
    return true;
}

void RmbeTransport::stop() {
    if (receiver_ == nullptr) {
        return;
    }
    if (link_) {
        // Bytes that a link did not deliver will not be sent again now, so the peer must not be told of them.
        const auto withdraw = [this] {
            outbox_.acknowledged(link_->retired());
            outbox_.withdraw(peer_consumed(), send_size());
        };
        if (!resume() || link_->is_lost()) {
            withdraw();
        }
        send_if_due();
        // While before_ is set, it may still write from the send element, and nothing was posted on link_ yet.
        LinkDriver& link = before_ ? *before_ : *link_;
        const bool due = outbox_.due(), held = is_held();
        const auto message = cdc::encode(outbox_.message());
        if (due && !held) {
            // After the writes of the same link: otherwise the peer might give the RMBE to another connection while
            // they are still under way.
            link.send_last(message);
        }
        withdraw();
        link_->forget(*task_);
        if (before_) {
            before_->forget(*task_);
        }
        const auto last = cdc::encode(due ? outbox_.message() : outbox_.repeated());
        if (due && held) {
            link.release_later(std::move(parts_.send), message, last, held_->up_to);
        } else {
            link.release(std::move(parts_.send), last);
        }
    }
    receiver_ = nullptr;
    link_.reset();
    before_.reset();
    parts_.group->linger(parts_.token, std::move(parts_.own));
}

// Section 4.6. Everything that was not acknowledged is sent again over the other link, when that has room.
bool RmbeTransport::move() {
    if (receiver_ == nullptr || !link_ || receiver_->is_reassigned) {
        return false;  // the peer's RMBE may belong to another connection by now (section 4.4.2)
    }
    const auto before = link_;
    outbox_.acknowledged(before->retired());
    if (!use(parts_.group->pick(before->number())) || link_ == before) {
        return false;
    }
    before->forget(*task_);
    validation_ = outbox_.moved();
    if (before->is_lost() || (before_ && before_->is_lost())) {
        hold_back();
    }
    // If the connection moves twice before resume() succeeds, what it has posted is on the older link.
    if (!before_ || before_->is_lost() || before_->retired() >= before_until_) {
        forget_before();
        before_ = before->is_lost() ? nullptr : before;
        before_until_ = before->next_sequence();
    }
    return true;
}

// That link may still have the task in its list of those that wait for room.
void RmbeTransport::forget_before() {
    if (before_) {
        before_->forget(*task_);
        before_.reset();
    }
}

// False: there is no link, or the peer's RMB is not known over it.
bool RmbeTransport::use(std::shared_ptr<LinkDriver> link) {
    if (!link) {
        return false;
    }
    RemoteRmbe& peer = parts_.peer;
    if (link->number() != peer.link) {
        const auto token = parts_.group->rtoken(peer.link, peer.rkey, link->number());
        if (!token) {
            return false;
        }
        peer.link = link->number();
        peer.rkey = token->rkey;
        peer.address = token->address;
    }
    link_ = std::move(link);
    lkey_ = parts_.send.lkey(link_->number());
    receiver_->link = link_->number();
    return true;
}

cdc::Cursor RmbeTransport::peer_consumed() const {
    return receiver_->inbox.empty() ? cdc::Cursor{} : receiver_->inbox.state(base_).consumer;
}

std::uint32_t RmbeTransport::not_consumed() const {
    return std::min(outbox_.not_there(peer_consumed(), send_size()), window());
}

// After a move, sends the validation and everything that the peer possibly lacks. False: that is not possible now.
bool RmbeTransport::resume() {
    if (!validation_) {
        return true;
    }
    if (before_ && !before_->is_lost() && before_->retired() < before_until_) {
        before_->want_room(*task_);
        return false;
    }
    if (before_ && before_->is_lost()) {
        hold_back();
    }
    forget_before();
    if (receiver_->is_reassigned) {
        return false;
    }
    if (!link_->has_room(kRequestsPerPublish + 1) || link_->send(cdc::encode(*validation_)) != Link::Posted::kYes) {
        link_->want_room(*task_);
        return false;
    }
    validation_.reset();
    write(staging_.again(not_consumed()));
    return true;
}

// A broken link does not write again what the peer's device has acknowledged or the peer has consumed; it may write the
// rest again.
void RmbeTransport::hold_back() {
    if (!is_held()) {
        held_.reset();
    }
    if (not_consumed() != 0) {
        // If two links break, the position of the first one is the lower one.
        const cdc::Cursor position = held_ ? held_->position : outbox_.safe(peer_consumed(), send_size());
        held_ = Held{position, parts_.group->last_broken()};
    }
}

std::uint32_t RmbeTransport::window() const {
    return window_of(parts_, base_);
}

flow::PeerState RmbeTransport::peer() const {
    flow::PeerState state = receiver_ != nullptr ? receiver_->inbox.state(base_) : flow::PeerState{};
    if (parts_.eye_catchers && !std::ranges::equal(kEyeCatcher, parts_.own.bytes().first(kEyeCatcher.size()))) {
        state.producer.cursor.count = flow::kNowhere;  // section 4.4.1: the peer wrote where it must not
    }
    if (is_held()) {
        state.consumer = outbox_.no_further(state.consumer, held_->position, send_size());
    }
    return state;
}

bool RmbeTransport::can_send() const {
    return link_ && !validation_ && link_->has_room(kRequestsPerPublish);
}

void RmbeTransport::want_room() {
    if (link_) {
        link_->want_room(*task_);
    }
}

Pieces RmbeTransport::space(cdc::Cursor, std::uint32_t bytes) const {
    return pieces(parts_.send.bytes().first(window()), staging_.next(), bytes);
}

void RmbeTransport::write(const List<flow::RdmaWrite, flow::Staging::kMaxWrites>& writes) {
    for (const flow::RdmaWrite& part : writes) {
        const auto to = static_cast<std::uint64_t>(parts_.peer.address) + parts_.peer.offset + base_ + part.to;
        link_->write(parts_.send.bytes().subspan(part.from, part.bytes), lkey_, parts_.peer.rkey, VirtualAddress{to});
    }
}

void RmbeTransport::send_if_due() {
    if (!outbox_.due() || !link_ || !resume()) {
        return;
    }
    // While is_held(), the end of the connection is held back, but not what comes before it.
    const cdc::Message message = outbox_.message(is_held());
    if (outbox_.has_told(message)) {
        return;
    }
    const std::uint64_t position = link_->next_sequence();
    outbox_.acknowledged(link_->retired());
    const auto posted = link_->send(cdc::encode(message));
    if (posted == Link::Posted::kFull) {
        link_->want_room(*task_);
    } else if (posted == Link::Posted::kYes) {
        outbox_.sent(receiver_->inbox, position, message);
    }
}

void RmbeTransport::publish(const cdc::Producer& producer, std::uint32_t written) {
    const auto writes = staging_.writes(written);
    if (link_) {
        write(writes);
    }
    outbox_.published(producer);
    send_if_due();
}

void RmbeTransport::consumed(cdc::Cursor cursor) {
    if (receiver_ != nullptr) {
        outbox_.consumed(cursor, receiver_->inbox);
        send_if_due();
    }
}

void RmbeTransport::flush() {
    if (receiver_ != nullptr) {
        outbox_.heard(receiver_->inbox);
        send_if_due();
    }
}

}  // namespace smc::smcr
