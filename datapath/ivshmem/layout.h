// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The layout of the memory that several machines share (docs/ivshmem.md). Every word is little-endian, aligned to its
// size and written whole. No value in it is trusted: any machine that has the memory mapped may have written it.
//
//   0               Superblock, a page
//   4096            PeerSlot[kPeers]
//   4096 + 128 * kPeers, rounded up to a page
//                   one word for each block: 0 if it is free, or its owner (owner_word())
//   data_offset     blocks
//
// A DMB is a run of blocks. Its first page is a DmbHeader; the DMB as SMC knows it begins after that page.
#pragma once

#include <cstdint>

namespace smc::ivshmem {

inline constexpr std::uint64_t kMagic = 0x31444d4353494d53;  // "SMISCMD1"
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint32_t kPage = 4096;
inline constexpr std::uint32_t kBlock = 64 * 1024;
inline constexpr std::uint32_t kPeers = 64;
inline constexpr std::uint32_t kMostBlocks = 1U << 16;  // a token has 16 bits for a block's number

struct Superblock {
    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t block_bytes;
    std::uint32_t peers;
    std::uint32_t blocks;
    std::uint64_t data_offset;
    std::uint64_t state;  // 0: not begun; kReady; else a number drawn by the machine that lays the area out
};
inline constexpr std::uint64_t kReady = 1;

// The slot of one machine. `owner` is a number that the machine draws each time it takes a slot.
struct PeerSlot {
    std::uint64_t owner;  // 0: the slot is free
    std::uint8_t gid[16];
    std::uint64_t beat;  // changes while the owner lives
    std::uint32_t rung;  // incremented when one of its doorbells is rung
    // 1 + the position at which it can be interrupted; 0: it can neither be interrupted nor interrupt others.
    std::uint32_t position;
    std::uint32_t sleeps;  // not 0: the next machine that rings interrupts it
    std::uint8_t pad[84];
};
static_assert(sizeof(PeerSlot) == 128);

// The owner of a block: its slot, and the low 48 bits of the slot's `owner`.
constexpr std::uint64_t owner_word(std::uint32_t slot, std::uint64_t owner) {
    return std::uint64_t{slot + 1} << 48 | (owner & 0xffffffffffff);
}

struct DmbHeader {
    std::uint64_t token;  // 0: it is no DMB
    std::uint8_t peer_gid[16];
    std::uint32_t bytes;
    std::uint32_t attached;  // enum Attached
    std::uint32_t armed;     // its owner wants to be rung
    std::uint32_t rang;      // it was rung
    std::uint32_t lease;     // datapath/smcd/lease.h
};

enum Attached : std::uint32_t { kNobody, kAttached, kLetGo };

constexpr std::uint32_t round_up(std::uint64_t bytes, std::uint32_t to) {
    return static_cast<std::uint32_t>((bytes + to - 1) / to);
}

// The offsets in an area of a given size.
struct Geometry {
    std::uint32_t blocks = 0;
    std::uint64_t words_offset = 0, data_offset = 0;
};
constexpr Geometry geometry_of(std::uint64_t area_bytes) {
    Geometry g;
    g.words_offset = std::uint64_t{round_up(kPage + kPeers * sizeof(PeerSlot), kPage)} * kPage;
    const std::uint64_t most = area_bytes / kBlock < kMostBlocks ? area_bytes / kBlock : kMostBlocks;
    g.data_offset = std::uint64_t{round_up(g.words_offset + most * sizeof(std::uint64_t), kBlock)} * kBlock;
    if (area_bytes > g.data_offset) {
        const std::uint64_t fitting = (area_bytes - g.data_offset) / kBlock;
        g.blocks = static_cast<std::uint32_t>(fitting < most ? fitting : most);
    }
    return g;
}

}  // namespace smc::ivshmem
