// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Connection Data Control: cursors and flags of a connection (RFC 7609 A.4). SMC-R sends them as 44-byte messages; ISM
// has no messages, so SMC-D keeps the same information in the first 32 bytes of every DMB, written by the peer. No
// specification defines that layout. This one is for Emulated-ISM between agents: each cursor is one aligned 8-byte
// word, always read and written whole, and the flags are in the word of the producer cursor, to which urgent data
// belongs. Linux on ISM hardware has the flags beside the consumer cursor instead.
#pragma once

#include <cstdint>
#include <cstring>

#include "smc/wire/layout.h"

namespace smc::cdc {

using wire::Bytes;

inline constexpr std::uint8_t kType = 0xfe;
inline constexpr std::size_t kMessageBytes = 44;
inline constexpr std::uint32_t kSmcdBytes = 32;

// Producer flags: B, P, U, R, F.
inline constexpr std::uint8_t kWriterBlocked = 0x80;
inline constexpr std::uint8_t kUrgentPending = 0x40;
inline constexpr std::uint8_t kUrgentPresent = 0x20;
inline constexpr std::uint8_t kCursorRequested = 0x10;
inline constexpr std::uint8_t kFailoverValidation = 0x08;
// Connection state flags: D, C, A.
inline constexpr std::uint8_t kSendingDone = 0x80;
inline constexpr std::uint8_t kConnectionClosed = 0x40;
inline constexpr std::uint8_t kAbnormalClose = 0x20;

// If RMBEs begin with an eye catcher, this many bytes of each carry no data (RFC 7609 section 4.4.1).
inline constexpr std::uint32_t kEyeCatcherBytes = 4;

// A wrapping offset into the data area with its wrap count. 0 <= count < size of the area. The RFC counts from 4,
// after the eye catcher of the RMBE, and wraps to 4; Linux has no eye catcher and starts at 0.
struct Cursor {
    std::uint16_t wrap = 0;
    std::uint32_t count = 0;

    bool operator==(const Cursor&) const = default;
};

// SMC-R: one message.
struct Message {
    std::uint8_t type = kType;
    std::uint8_t length = kMessageBytes;
    std::uint16_t sequence = 0;  // the first is 1; wraps to 0
    AlertToken token{};          // the receiver's
    Cursor producer;             // in the receiver's RMBE
    Cursor consumer;             // in the sender's RMBE
    std::uint8_t flags = 0;
    std::uint8_t state = 0;

    bool operator==(const Message&) const = default;
};

// SMC-D: the word that a writer publishes ...
struct Producer {
    Cursor cursor;
    std::uint8_t flags = 0;
    std::uint8_t state = 0;

    bool operator==(const Producer&) const = default;
};

// ... and all 32 bytes.
struct SmcdMessage {
    std::uint8_t type = kType;
    Producer producer;
    Cursor consumer;

    bool operator==(const SmcdMessage&) const = default;
};

}  // namespace smc::cdc

namespace smc::wire {

template <>
struct Layout<cdc::Cursor> {
    using C = cdc::Cursor;
    static constexpr std::size_t kSize = 6;
    static constexpr auto kFields = std::tuple{
        field<&C::wrap>(0, 2, "_wrap_seqno", " wrap seqno"),
        field<&C::count>(2, 4, "", ""),
    };
};
static_assert(fields_fit<cdc::Cursor>());

// Two bytes of flags: the producer's, and after them the connection's state.
template <class M>
constexpr auto cdc_flags(std::uint16_t at) {
    const auto behind = static_cast<std::uint16_t>(at + 1);
    return std::tuple{
        flag<&M::flags, cdc::kWriterBlocked>(at, "writer_blocked", "Writer blocked indicator"),
        flag<&M::flags, cdc::kUrgentPending>(at, "urgent_data_pending", "Urgent data pending"),
        flag<&M::flags, cdc::kUrgentPresent>(at, "urgent_data_present", "Urgent data present"),
        flag<&M::flags, cdc::kCursorRequested>(at, "request_for_consumer_cursor_update",
                                               "Request for consumer cursor update"),
        flag<&M::flags, cdc::kFailoverValidation>(at, "failover_validation", "Failover validation indicator"),
        flag<&M::state, cdc::kSendingDone>(behind, "sending_done", "Sending done indicator"),
        flag<&M::state, cdc::kConnectionClosed>(behind, "peer_connection_closed", "PeerConnectionClosed indicator"),
        flag<&M::state, cdc::kAbnormalClose>(behind, "abnormal_close", "Abnormal close indicator"),
    };
}

template <>
struct Layout<cdc::Message> {
    using M = cdc::Message;
    static constexpr std::size_t kSize = cdc::kMessageBytes;
    static constexpr auto kFields = std::tuple_cat(
        std::tuple{
            field<&M::type>(0, 1, "type", "Type"),
            field<&M::length>(1, 1, "length", "Length"),
            field<&M::sequence>(2, 2, "sequence_number", "Sequence number"),
            field<&M::token>(4, 4, "smcr_alert_token", "SMC-R alert token"),
            part<&M::producer>(10, "producer_cursor", "Producer cursor"),
            part<&M::consumer>(18, "consumer_cursor", "Consumer cursor"),
        },
        cdc_flags<M>(24));
};
static_assert(fields_fit<cdc::Message>());

template <>
struct Layout<cdc::Producer> {
    using P = cdc::Producer;
    static constexpr std::size_t kSize = 8;
    static constexpr auto kFields = std::tuple_cat(
        std::tuple{
            part<&P::cursor>(0, "producer_cursor", "Producer cursor"),
        },
        cdc_flags<P>(6));
};
static_assert(fields_fit<cdc::Producer>());

template <>
struct Layout<cdc::SmcdMessage> {
    using M = cdc::SmcdMessage;
    static constexpr std::size_t kSize = cdc::kSmcdBytes;
    static constexpr auto kFields = std::tuple{
        field<&M::type>(0, 1, "type", "Type"),
        part<&M::producer>(8, "", ""),
        part<&M::consumer>(16, "consumer_cursor", "Consumer cursor"),
    };
};
static_assert(fields_fit<cdc::SmcdMessage>());

}  // namespace smc::wire

namespace smc::cdc {

// Offsets of SMC-D's two words.
inline constexpr std::uint32_t kProducerOffset = wire::field_of<SmcdMessage, &SmcdMessage::producer>().offset;
inline constexpr std::uint32_t kConsumerOffset = wire::field_of<SmcdMessage, &SmcdMessage::consumer>().offset;

// Decodes exactly one message. The connection judges stale sequence numbers and impossible cursors.
inline Decoded<Message> decode(Bytes message) {
    if (message.size() != kMessageBytes) {
        return wire::fault_at<Message, &Message::length>(0, message.size(), "44 bytes", Verdict::kReset);
    }
    Decoded<Message> decoded;
    Message& m = *std::get_if<0>(&decoded);
    wire::decode_fixed<Message>(message.data(), m);
    if (m.type != kType) {
        return wire::fault_at<Message, &Message::type>(0, m.type, "xFE", Verdict::kReset);
    }
    if (m.length != kMessageBytes) {
        return wire::fault_at<Message, &Message::length>(0, m.length, "44", Verdict::kReset);
    }
    return decoded;
}

inline wire::Encoded<kMessageBytes> encode(const Message& message) {
    wire::Encoded<kMessageBytes> out;
    wire::encode_fixed<Message>(message, out.bytes.data());
    out.size = kMessageBytes;
    return out;
}

// Decodes the memory at the start of a DMB.
inline Decoded<SmcdMessage> decode_smcd(Bytes memory) {
    if (memory.size() < kSmcdBytes) {
        return Fault{"length", 0, memory.size(), "32 bytes", Verdict::kReset};
    }
    SmcdMessage m;
    wire::decode_fixed<SmcdMessage>(memory.data(), m);
    if (m.type != kType) {
        return wire::fault_at<SmcdMessage, &SmcdMessage::type>(0, m.type, "xFE", Verdict::kReset);
    }
    return m;
}

inline wire::Encoded<kSmcdBytes> encode(const SmcdMessage& message) {
    wire::Encoded<kSmcdBytes> out;
    wire::encode_fixed<SmcdMessage>(message, out.bytes.data());
    out.size = kSmcdBytes;
    return out;
}

// SMC-D's words as they stand in memory.
inline std::uint64_t pack(const Producer& p) {
    std::uint8_t bytes[8] = {};
    wire::encode_fixed<Producer>(p, bytes);
    std::uint64_t word = 0;
    std::memcpy(&word, bytes, sizeof word);
    return word;
}
inline std::uint64_t pack(const Cursor& c) {
    return pack(Producer{c, 0, 0});
}
inline Producer unpack_producer(std::uint64_t word) {
    std::uint8_t bytes[8];
    std::memcpy(bytes, &word, sizeof word);
    Producer p;
    wire::decode_fixed<Producer>(bytes, p);
    return p;
}
inline Cursor unpack_cursor(std::uint64_t word) {
    return unpack_producer(word).cursor;
}

// `from` moved on by n <= size bytes in an area of `size` bytes.
constexpr Cursor advance(Cursor from, std::uint32_t n, std::uint32_t size) {
    from.count += n;
    if (from.count >= size) {
        from.count -= size;
        from.wrap++;
    }
    return from;
}

// Bytes from `consumer` to `producer`; at most one lap apart. A result above `size`: the two do not fit together.
constexpr std::uint32_t distance(Cursor consumer, Cursor producer, std::uint32_t size) {
    if (consumer.wrap == producer.wrap) {
        return producer.count >= consumer.count ? producer.count - consumer.count : ~0U;
    }
    if (static_cast<std::uint16_t>(consumer.wrap + 1) == producer.wrap) {
        return size - consumer.count + producer.count;
    }
    return ~0U;
}

// True if both cursors are in the area, and `producer` is ahead of `consumer` by at most its size.
constexpr bool is_sane(Cursor consumer, Cursor producer, std::uint32_t size) {
    return producer.count < size && consumer.count < size && distance(consumer, producer, size) <= size;
}

}  // namespace smc::cdc
