// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/flow/cdc_outbox.h"

#include <algorithm>

namespace smc::flow {

namespace {

bool peer_waits(const CdcInbox& inbox) {
    return (inbox.latest().flags & (cdc::kWriterBlocked | cdc::kCursorRequested)) != 0;
}

}  // namespace

void CdcOutbox::published(const cdc::Producer& producer) {
    producer_ = producer;
    due_ = true;
}

void CdcOutbox::consumed(cdc::Cursor consumed, const CdcInbox& inbox) {
    consumed_ = consumed;
    due_ |= peer_waits(inbox) || urgent_consumed(inbox) || peer_gains(inbox);
}

void CdcOutbox::heard(const CdcInbox& inbox) {
    due_ |= told_ != consumed_ && peer_waits(inbox);
}

// The peer writes nothing after its urgent data before it knows that this was consumed (section 4.7.5).
bool CdcOutbox::urgent_consumed(const CdcInbox& inbox) const {
    return inbox.urgent() && cdc::distance(from_wire(*inbox.urgent(), base_), consumed_, receive_size_) != kNowhere;
}

bool CdcOutbox::peer_gains(const CdcInbox& inbox) const {
    const std::uint32_t gained = cdc::distance(told_, consumed_, receive_size_);
    const std::uint32_t in_use = cdc::distance(told_, from_wire(inbox.latest().producer, base_), receive_size_);
    return in_use > receive_size_ / 2 && gained >= receive_size_ / 10;
}

cdc::Message CdcOutbox::message(bool before_the_end) const {
    cdc::Message out;
    out.sequence = static_cast<std::uint16_t>(sequence_ + 1);
    out.token = peer_;
    out.producer = to_wire(producer_.cursor, base_);
    out.consumer = to_wire(consumed_, base_);
    out.flags = producer_.flags;
    if (announced_ == producer_.cursor) {
        out.flags &= static_cast<std::uint8_t>(~(cdc::kUrgentPending | cdc::kUrgentPresent));  // F6
    }
    constexpr auto kNoEnd = static_cast<std::uint8_t>(~(cdc::kConnectionClosed | cdc::kAbnormalClose));
    out.state = before_the_end ? producer_.state & kNoEnd : producer_.state;
    return out;
}

bool CdcOutbox::has_told(const cdc::Message& message) const {
    cdc::Message again = message;
    again.sequence = sequence_;
    return message.state != producer_.state && last_ == again;
}

void CdcOutbox::sent(CdcInbox& inbox, std::uint64_t position, const cdc::Message& message) {
    sequence_++;
    due_ = message.state != producer_.state;
    last_ = message;
    told_ = consumed_;
    const bool announces = (producer_.flags & cdc::kUrgentPresent) != 0 && announced_ != producer_.cursor;
    if ((producer_.flags & cdc::kUrgentPresent) != 0) {
        announced_ = producer_.cursor;
    }
    if (urgent_consumed(inbox)) {
        inbox.forget_urgent();
    }
    posted_.push_back({position, sequence_, producer_.cursor, announces});
}

cdc::Message CdcOutbox::repeated() const {
    cdc::Message out = message();
    out.sequence = sequence_;
    return out;
}

void CdcOutbox::acknowledged(std::uint64_t position) {
    while (!posted_.empty() && posted_.front().position < position) {
        acknowledged_ = posted_.front().sequence;
        acknowledged_to_ = posted_.front().producer;
        posted_.pop_front();
    }
}

std::uint32_t CdcOutbox::not_there(cdc::Cursor consumed, std::uint32_t size) const {
    return std::min(cdc::distance(consumed, producer_.cursor, size),
                    cdc::distance(acknowledged_to_, producer_.cursor, size));
}

cdc::Cursor CdcOutbox::safe(cdc::Cursor consumed, std::uint32_t size) const {
    const bool beyond =
        cdc::distance(acknowledged_to_, consumed, size) <= cdc::distance(acknowledged_to_, producer_.cursor, size);
    return beyond ? consumed : acknowledged_to_;
}

void CdcOutbox::withdraw(cdc::Cursor consumed, std::uint32_t size) {
    producer_.cursor = safe(consumed, size);
}

cdc::Cursor CdcOutbox::no_further(cdc::Cursor consumed, cdc::Cursor position, std::uint32_t size) const {
    const bool beyond = cdc::distance(position, consumed, size) <= cdc::distance(position, producer_.cursor, size);
    return beyond ? position : consumed;
}

cdc::Message CdcOutbox::moved() {
    // F6: urgent data is announced again only if its announcement may have been lost.
    if (std::ranges::any_of(posted_, &Posted::announces)) {
        announced_.reset();
    }
    posted_.clear();
    last_.reset();
    due_ = true;
    cdc::Message out;
    out.sequence = acknowledged_;
    out.token = peer_;
    out.flags = cdc::kFailoverValidation;
    return out;
}

}  // namespace smc::flow
