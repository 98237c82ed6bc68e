// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/roce/rmbe_transport.h"

#include <algorithm>

namespace smc::roce {

namespace {

// A piece may end at the end of the peer's ring and at the end of the own memory: at most three writes, and the
// message.
constexpr std::uint32_t kRequestsPerPublish = 4;
// For local checking only (section 4.4.1): "SMCR" in EBCDIC.
constexpr std::array<std::uint8_t, kEyeCatcherBytes> kEyeCatcher{0xe2, 0xd4, 0xc3, 0xd9};
// Where no cursor of a ring can be.
constexpr std::uint32_t kNowhere = ~0U;

cdc::Cursor from_wire(cdc::Cursor cursor, std::uint32_t base) {
    cursor.count = cursor.count >= base ? cursor.count - base : kNowhere;
    return cursor;
}

cdc::Cursor to_wire(cdc::Cursor cursor, std::uint32_t base) {
    cursor.count += base;
    return cursor;
}

}  // namespace

RmbeTransport::RmbeTransport(Parts parts)
    : parts_(std::move(parts)), base_(parts_.eye_catchers ? kEyeCatcherBytes : 0) {
    if (base_ != 0) {
        std::ranges::copy(kEyeCatcher, parts_.own.bytes().begin());
    }
}

bool RmbeTransport::start(Poller&, Poller::Source& source) {
    connection_ = parts_.channel->attach(parts_.token, *source.task);
    if (connection_ == nullptr) {
        source.task->abort(Reason::kLinkDown);
    }
    return true;
}

void RmbeTransport::stop() {
    if (connection_ == nullptr) {
        return;
    }
    flush();
    if (dirty_) {
        sequence_++;
        parts_.channel->send_last(message());
    }
    parts_.channel->detach(parts_.token, *std::exchange(connection_, nullptr), std::move(parts_.own),
                           std::move(parts_.send));
}

std::uint32_t RmbeTransport::window() const {
    return std::min(send_size(), static_cast<std::uint32_t>(parts_.send.bytes().size()));
}

PeerState RmbeTransport::load() {
    if (connection_ == nullptr || connection_->inbox.empty()) {
        flush();
        return {};
    }
    const cdc::Message& latest = connection_->inbox.read();
    PeerState state{{from_wire(latest.producer, base_), latest.flags, latest.state},
                    from_wire(latest.consumer, base_),
                    std::nullopt};
    if (base_ != 0 && !std::ranges::equal(kEyeCatcher, parts_.own.bytes().first(kEyeCatcherBytes))) {
        state.producer.cursor.count = kNowhere;  // section 4.4.1: the peer wrote where it must not
    }
    if (const auto urgent = connection_->inbox.take_urgent()) {
        state.urgent = urgent_ = from_wire(*urgent, base_);
    }
    dirty_ |= !(consumed_ == told_) && (latest.flags & (cdc::kWriterBlocked | cdc::kCursorRequested)) != 0;
    flush();
    return state;
}

bool RmbeTransport::can_send() const {
    return connection_ != nullptr && parts_.channel->has_room(*connection_, kRequestsPerPublish);
}

Pieces RmbeTransport::space(cdc::Cursor, std::uint32_t bytes) {
    const auto memory = parts_.send.bytes().first(window());
    return pieces(memory, staged_ % memory.size(), bytes);
}

void RmbeTransport::write(std::uint32_t bytes) {
    const auto memory = parts_.send.bytes().first(window());
    while (bytes > 0) {
        const auto from = static_cast<std::uint32_t>(staged_ % memory.size());
        const std::uint32_t n =
            std::min({bytes, static_cast<std::uint32_t>(memory.size()) - from, send_size() - written_.count});
        const auto to = static_cast<std::uint64_t>(parts_.peer.address) + base_ + written_.count;
        parts_.channel->write(memory.subspan(from, n), parts_.send.lkey(), parts_.peer.rkey, VirtualAddress{to});
        written_ = cdc::advance(written_, n, send_size());
        staged_ += n;
        bytes -= n;
    }
}

wire::Encoded<cdc::kMessageBytes> RmbeTransport::message() const {
    cdc::Message out;
    out.sequence = sequence_;
    out.token = parts_.peer.token;
    out.producer = to_wire(producer_.cursor, base_);
    out.consumer = to_wire(consumed_, base_);
    out.flags = producer_.flags;
    if (announced_ == producer_.cursor) {
        out.flags &= static_cast<std::uint8_t>(~(cdc::kUrgentPending | cdc::kUrgentPresent));  // R3
    }
    out.state = producer_.state;
    return cdc::encode(out);
}

// One message tells everything there is to tell.
void RmbeTransport::flush() {
    if (!dirty_ || connection_ == nullptr) {
        return;
    }
    sequence_++;
    if (parts_.channel->send(message()) == Link::Posted::kFull) {
        sequence_--;
        parts_.channel->has_room(*connection_, kRequestsPerPublish);  // to be called when there is
        return;
    }
    dirty_ = false;
    told_ = consumed_;
    if ((producer_.flags & cdc::kUrgentPresent) != 0) {
        announced_ = producer_.cursor;
    }
    if (urgent_ && cdc::distance(*urgent_, consumed_, static_cast<std::uint32_t>(receive_ring().size())) != kNowhere) {
        urgent_.reset();
    }
}

void RmbeTransport::publish(const cdc::Producer& producer, std::uint32_t written) {
    producer_ = producer;
    if (connection_ != nullptr) {
        write(written);
    }
    dirty_ = true;
    flush();
}

// Section 4.5.1; for urgent data section 4.7.5.
bool RmbeTransport::update_is_due() const {
    const auto size = static_cast<std::uint32_t>(receive_ring().size());
    const cdc::Message& latest = connection_->inbox.latest();
    const std::uint32_t gained = cdc::distance(told_, consumed_, size);
    const std::uint32_t in_use = cdc::distance(told_, from_wire(latest.producer, base_), size);
    return (latest.flags & (cdc::kWriterBlocked | cdc::kCursorRequested)) != 0 ||
           (urgent_ && cdc::distance(*urgent_, consumed_, size) != kNowhere) ||
           (in_use > size / 2 && gained >= size / 10);
}

void RmbeTransport::consumed(cdc::Cursor cursor) {
    consumed_ = cursor;
    if (connection_ != nullptr && update_is_due()) {
        dirty_ = true;
        flush();
    }
}

}  // namespace smc::roce
