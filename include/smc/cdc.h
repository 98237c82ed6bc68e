// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Connection Data Control for SMC-D: the 32 bytes at the start of every DMB, written by the peer.
//
// RFC 7609 A.4 defines the meaning of cursors and flags for SMC-R; ISM has no messages, so SMC-D keeps the
// same information in memory. Layout, as Linux has it on the fabric (big endian):
//
//   0   1  type, x'FE'          8  2 producer wrap    16  2 consumer wrap    24  8 reserved
//   1   7  reserved            10  4 producer cursor  18  4 consumer cursor
//                              14  1 producer flags   22  2 reserved
//                              15  1 state flags
//
// Each cursor is one aligned 8-byte word, so that it is always read and written whole.
#pragma once

#include <bit>
#include <cstdint>

namespace smc::cdc {

inline constexpr std::uint32_t kSmcdBytes = 32;
inline constexpr std::uint32_t kProducerOffset = 8;
inline constexpr std::uint32_t kConsumerOffset = 16;
inline constexpr std::uint8_t kType = 0xfe;

// Producer flags (RFC 7609 A.4: B, P, U, R).
inline constexpr std::uint8_t kWriterBlocked = 0x80;
inline constexpr std::uint8_t kUrgentPending = 0x40;
inline constexpr std::uint8_t kUrgentPresent = 0x20;
inline constexpr std::uint8_t kCursorRequested = 0x10;
// Connection state flags (D, C, A).
inline constexpr std::uint8_t kSendingDone = 0x80;
inline constexpr std::uint8_t kConnectionClosed = 0x40;
inline constexpr std::uint8_t kAbnormalClose = 0x20;

// A wrapping offset into the data area with its wrap count. 0 <= count < size of the area.
struct Cursor {
    std::uint16_t wrap = 0;
    std::uint32_t count = 0;

    bool operator==(const Cursor&) const = default;
};

struct Producer {
    Cursor cursor;
    std::uint8_t flags = 0;
    std::uint8_t state = 0;

    bool operator==(const Producer&) const = default;
};

// Words as they stand in memory: big endian.
constexpr std::uint64_t to_big(std::uint64_t value) {
    return std::endian::native == std::endian::little ? __builtin_bswap64(value) : value;
}
constexpr std::uint64_t pack(const Producer& p) {
    return to_big(std::uint64_t{p.cursor.wrap} << 48 | std::uint64_t{p.cursor.count} << 16 |
                  std::uint64_t{p.flags} << 8 | p.state);
}
constexpr std::uint64_t pack(const Cursor& c) {
    return pack(Producer{c, 0, 0});
}
constexpr Producer unpack_producer(std::uint64_t word) {
    const std::uint64_t v = to_big(word);
    return {{static_cast<std::uint16_t>(v >> 48), static_cast<std::uint32_t>(v >> 16)},
            static_cast<std::uint8_t>(v >> 8),
            static_cast<std::uint8_t>(v)};
}
constexpr Cursor unpack_cursor(std::uint64_t word) {
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

// Bytes from `consumer` to `producer`; at most one lap apart. Larger than `size` means nonsense.
constexpr std::uint32_t distance(Cursor consumer, Cursor producer, std::uint32_t size) {
    if (consumer.wrap == producer.wrap) {
        return producer.count >= consumer.count ? producer.count - consumer.count : ~0U;
    }
    if (static_cast<std::uint16_t>(consumer.wrap + 1) == producer.wrap) {
        return size - consumer.count + producer.count;
    }
    return ~0U;
}

// A cursor that a peer published may follow `known` only by what the area can hold.
constexpr bool is_sane(Cursor consumer, Cursor producer, std::uint32_t size) {
    return producer.count < size && consumer.count < size &&
           distance(consumer, producer, size) <= size;
}

}  // namespace smc::cdc
