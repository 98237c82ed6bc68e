// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The shared area as one machine sees it: its place among the peers, and blocks.
//
// Invariants:
//   A1  A block's word is the only truth about it, and changes by compare-and-swap: whoever dies between two stores
//       leaves blocks that carry his name, and no other trace.
//   A2  Blocks are given back by their owner, or by anybody once that owner's place is another's or dead.
//   A3  Nothing is read twice: what decides is copied, and checked against the geometry that was computed here.
//   A4  No store goes outside the mapping, whatever the area holds.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "datapath/ivshmem/layout.h"
#include "os/mapping.h"
#include "os/result.h"
#include "smc/time.h"
#include "smc/wire/ids.h"

namespace smc::ivshmem {

class Area {
 public:
    // A BAR, or a file. What nobody has used yet is laid out; what another version has laid out is refused. Takes a
    // place; an Error if there is none.
    static Result<std::unique_ptr<Area>> open(const std::string& path, const Gid& gid);
    static Result<std::unique_ptr<Area>> open(Mapping mapping, const Gid& gid);
    // Leaves its place, and gives back what it has.
    ~Area();
    Area(const Area&) = delete;
    Area& operator=(const Area&) = delete;

    // `count` blocks in a row; the number of the first. Nothing: there is no such run.
    std::optional<std::uint32_t> allocate(std::uint32_t count);
    // Those of these blocks that are its own.
    void release(std::uint32_t first, std::uint32_t count);
    [[nodiscard]] std::uint32_t blocks() const { return geometry_.blocks; }
    [[nodiscard]] std::uint32_t used() const;

    // The memory of a run. Empty: it is none.
    [[nodiscard]] std::span<std::uint8_t> run(std::uint32_t first, std::uint32_t count) const;
    [[nodiscard]] DmbHeader* header(std::uint32_t block) const;
    // Keeps the memory mapped.
    [[nodiscard]] std::shared_ptr<const void> memory() const { return mapping_; }

    // The place of this peer, if it lives. Of several that say so the first.
    [[nodiscard]] std::optional<std::uint32_t> find(const Gid& gid) const;
    // Who has a block, as a place that lives; nothing: nobody.
    [[nodiscard]] std::optional<std::uint32_t> owner_of(std::uint32_t block) const;
    [[nodiscard]] Gid gid_of(std::uint32_t slot) const;
    [[nodiscard]] std::uint32_t slot() const { return slot_; }

    // Says that it lives, and finds out who does not: to be called every kBeat. Places of the dead are emptied. False:
    // its own place was taken from it, because it was away for too long: nothing of it is its own any more.
    bool beat(TimePoint now);
    static constexpr std::chrono::milliseconds kBeat{250};
    static constexpr std::chrono::milliseconds kDead{5000};  // without a beat

    // Wakes who has that place, and how often this one was woken.
    void ring(std::uint32_t slot) const;
    [[nodiscard]] std::uint32_t rung() const;

 private:
    struct Seen {
        std::uint64_t owner = 0, beat = 0;
        TimePoint since{};
        bool dead = false;
    };

    Area(std::shared_ptr<Mapping> mapping, const Geometry& geometry)
        : mapping_(std::move(mapping)), geometry_(geometry), seen_(kPeers) {}
    Result<void> lay_out();
    Result<void> take_place(const Gid& gid);
    void empty(std::uint32_t slot, std::uint64_t owner);
    [[nodiscard]] PeerSlot& peer(std::uint32_t slot) const;
    [[nodiscard]] std::atomic_ref<std::uint64_t> word(std::uint32_t block) const;

    std::shared_ptr<Mapping> mapping_;
    Geometry geometry_;
    std::uint32_t slot_ = kPeers;  // kPeers: it has none
    std::uint64_t owner_ = 0;
    std::uint64_t beats_ = 0;
    std::uint32_t next_ = 0;  // where to look for blocks
    std::vector<Seen> seen_;
};

}  // namespace smc::ivshmem
