// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/smcr/rmbe_transport.h"

#include <algorithm>
#include <array>

namespace smc::smcr {

namespace {

constexpr std::uint32_t kRequestsPerPublish = flow::Staging::kMaxWrites + 1;  // and the message
// For local checking only (section 4.4.1): "SMCR" in EBCDIC.
constexpr std::array<std::uint8_t, cdc::kEyeCatcherBytes> kEyeCatcher{0xe2, 0xd4, 0xc3, 0xd9};

// F7: never more than there is memory to send from.
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

bool RmbeTransport::start(Poller&, Poller::Source& source) {
    receiver_ = parts_.link->attach(parts_.token, *source.task);
    if (receiver_ == nullptr) {
        source.task->abort(Reason::kLinkDown);
    }
    return true;
}

void RmbeTransport::stop() {
    if (receiver_ == nullptr) {
        return;
    }
    send_if_due();
    if (outbox_.due()) {
        parts_.link->send_last(cdc::encode(outbox_.message()));
    }
    parts_.link->detach(parts_.token, *std::exchange(receiver_, nullptr), std::move(parts_.own),
                        std::move(parts_.send));
}

std::uint32_t RmbeTransport::window() const {
    return window_of(parts_, base_);
}

flow::PeerState RmbeTransport::peer() const {
    flow::PeerState state = receiver_ != nullptr ? receiver_->inbox.state(base_) : flow::PeerState{};
    if (parts_.eye_catchers && !std::ranges::equal(kEyeCatcher, parts_.own.bytes().first(kEyeCatcher.size()))) {
        state.producer.cursor.count = flow::kNowhere;  // section 4.4.1: the peer wrote where it must not
    }
    return state;
}

bool RmbeTransport::can_send() const {
    return receiver_ != nullptr && parts_.link->has_room(kRequestsPerPublish);
}

void RmbeTransport::want_room() {
    if (receiver_ != nullptr) {
        parts_.link->want_room(*receiver_);
    }
}

Pieces RmbeTransport::space(cdc::Cursor, std::uint32_t bytes) const {
    return pieces(parts_.send.bytes().first(window()), staging_.next(), bytes);
}

void RmbeTransport::write(std::uint32_t bytes) {
    for (const flow::RdmaWrite& part : staging_.writes(bytes)) {
        const auto to = static_cast<std::uint64_t>(parts_.peer.address) + base_ + part.to;
        parts_.link->write(parts_.send.bytes().subspan(part.from, part.bytes), parts_.send.lkey(), parts_.peer.rkey,
                           VirtualAddress{to});
    }
}

void RmbeTransport::send_if_due() {
    if (!outbox_.due() || receiver_ == nullptr) {
        return;
    }
    if (parts_.link->send(cdc::encode(outbox_.message())) == Link::Posted::kFull) {
        parts_.link->want_room(*receiver_);
        return;
    }
    outbox_.sent(receiver_->inbox);
}

void RmbeTransport::publish(const cdc::Producer& producer, std::uint32_t written) {
    if (receiver_ != nullptr) {
        write(written);
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
