// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The shared area as one machine sees it: the slot that it has among the peers, and the blocks. A run is a sequence of
// consecutive blocks.
//
// Invariants:
//   A1  A block's word alone says who owns the block, and changes only by compare-and-swap: a machine that dies between
//       two stores leaves blocks with its owner word, and no other trace.
//   A2  Blocks are given back by their owner or, when the owner has had no slot for kReclaimAfter, by any machine: a
//       peer that still wrote to them has noticed the owner's death long before.
//   A3  A value from the area is copied before it is used, and checked against the geometry that was computed here.
//   A4  No store goes outside the mapping, whatever the area holds.
//   A5  A machine that stood still may have lost its blocks, and the blocks that it has attached, to others: so every
//       machine checks its claim before it reads or writes a block. A run is given back from its first block on, so
//       the word of that block is enough to check.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "datapath/ivshmem/layout.h"
#include "datapath/ivshmem/vfio_device.h"
#include "datapath/smcd/claim.h"
#include "os/mapping.h"
#include "os/result.h"
#include "smc/time.h"
#include "smc/wire/ids.h"

namespace smc::ivshmem {

class Area {
 public:
    // `path`: a BAR or a file. Lays the area out if it is unused; fails if another version has laid it out. Takes a
    // slot, if one is free. `vfio`: the device that the memory belongs to, if it has interrupts.
    static Result<std::unique_ptr<Area>> open(const std::string& path, const Gid& gid);
    static Result<std::unique_ptr<Area>> open(Mapping mapping, const Gid& gid,
                                              std::unique_ptr<VfioDevice> vfio = nullptr);
    // Leaves the slot. The other machines give the remaining blocks back when no peer can write to them any more.
    ~Area();
    Area(const Area&) = delete;
    Area& operator=(const Area&) = delete;

    // Allocates a run of `count` blocks, and returns the number of its first block. Nothing: there is no free run.
    std::optional<std::uint32_t> allocate(std::uint32_t count);
    // Gives back those blocks of the run whose word is `owner`.
    void release(std::uint32_t first, std::uint32_t count, std::uint64_t owner);
    void release(std::uint32_t first, std::uint32_t count) { release(first, count, own_word()); }
    [[nodiscard]] std::uint64_t own_word() const { return owner_word(slot_, owner_); }
    [[nodiscard]] std::uint64_t word_of(std::uint32_t block) const { return word(block).load(); }
    // A claim on the run that begins with `block`. It stands while the block has this word and this machine keeps its
    // present slot (A5).
    [[nodiscard]] smcd::Claim claim(std::uint32_t block, std::uint64_t word) const;
    [[nodiscard]] std::uint32_t blocks() const { return geometry_.blocks; }
    [[nodiscard]] std::uint32_t used() const;

    // The memory of a run. Empty: the run is not inside the area.
    [[nodiscard]] std::span<std::uint8_t> run(std::uint32_t first, std::uint32_t count) const;
    [[nodiscard]] DmbHeader* header(std::uint32_t block) const;
    // Keeps the memory mapped.
    [[nodiscard]] std::shared_ptr<const void> memory() const { return mapping_; }

    // The slot of the peer with this GID, if the peer lives; if several slots have the GID, the first.
    [[nodiscard]] std::optional<std::uint32_t> find(const Gid& gid) const;
    // Whether the peer with this GID has a slot, and so may still write to blocks, even if it is taken for dead here.
    [[nodiscard]] bool may_write(const Gid& gid) const;
    // The slot of a block's owner; nothing: the block is free, or its owner has no slot any more.
    [[nodiscard]] std::optional<std::uint32_t> owner_of(std::uint32_t block) const;
    [[nodiscard]] Gid gid_of(std::uint32_t slot) const;
    [[nodiscard]] std::uint32_t slot() const { return slot_; }

    // Tells the peers that this machine lives: called at least every kBeat, on one thread.
    void say_alive();
    // Notes which peers are silent, ends the slots of the dead, and gives back their blocks. Returns the time that it
    // counts as passed since the last call: at most 2 * kBeat, so that a machine that stood still finds no peer dead.
    std::chrono::steady_clock::duration look(TimePoint now);
    // False: this machine has never had a slot, or a peer has taken it because of its silence. It then owns no block.
    [[nodiscard]] bool has_slot() const;
    // Takes a slot, with a new owner number. Blocks of its former slot have no owner any more. EBUSY: no slot is free.
    Result<void> take_slot();
    static constexpr std::chrono::milliseconds kBeat{250};
    static constexpr std::chrono::milliseconds kDead{5000};  // a peer without a beat for so long is taken for dead
    // How long blocks without an owner are kept: longer than 2 * kDead, for which a silent machine keeps its slot.
    static constexpr std::chrono::milliseconds kReclaimAfter = 3 * kDead;
    // Blocks between hold() and drop() may be written from here, even if their owner dies, so they are not given back.
    using Held = std::multimap<std::uint32_t, std::uint32_t>;  // first -> count
    [[nodiscard]] Held::iterator hold(std::uint32_t first, std::uint32_t count);
    void drop(Held::iterator held);

    // Wakes the machine that has `slot`.
    void ring(std::uint32_t slot) const;
    // How often this machine was rung.
    [[nodiscard]] std::uint32_t rung() const;
    // nullptr: there is no device with interrupts.
    [[nodiscard]] VfioDevice* vfio() const { return vfio_.get(); }
    // Whether every machine that has a slot can interrupt this process, and no other one by the same interrupt. This
    // process then need not poll for rings between say_sleeping(true) and say_sleeping(false).
    [[nodiscard]] bool is_interrupted_by_all() const;
    void say_sleeping(bool sleeps) const;

 private:
    struct Seen {
        std::uint64_t owner = 0, beat = 0;
        std::chrono::steady_clock::duration silent{};
        [[nodiscard]] bool dead() const { return owner != 0 && silent >= kDead; }
    };
    // A block whose word names no present owner of a slot, and how long it has been so.
    struct Unowned {
        std::uint64_t word = 0;
        std::chrono::steady_clock::duration since{};
    };

    Area(Mapping mapping, const Geometry& geometry, const Gid& gid, std::unique_ptr<VfioDevice> vfio)
        : vfio_(std::move(vfio)),
          mapping_(std::make_shared<Mapping>(std::move(mapping))),
          geometry_(geometry),
          gid_(gid),
          seen_(kPeers),
          unowned_(geometry.blocks) {}
    Result<void> lay_out();
    void leave(std::uint32_t slot, std::uint64_t owner);
    void write_gid(std::uint32_t slot, const Gid& gid) const;
    void reclaim_unowned(std::chrono::steady_clock::duration passed);
    [[nodiscard]] bool is_held(std::uint32_t block);
    [[nodiscard]] PeerSlot& peer(std::uint32_t slot) const;
    [[nodiscard]] std::atomic_ref<std::uint64_t> word(std::uint32_t block) const;

    std::unique_ptr<VfioDevice> vfio_;
    std::shared_ptr<Mapping> mapping_;
    Geometry geometry_;
    Gid gid_;
    std::atomic<std::uint32_t> slot_{kPeers};  // kPeers: this machine has no slot
    std::atomic<std::uint64_t> owner_{0};
    std::uint64_t beats_ = 0;       // used by say_alive()
    std::uint32_t next_ = 0;        // the block at which allocate() begins to search
    std::vector<Seen> seen_;        // by slot
    std::vector<Unowned> unowned_;  // by block
    std::optional<TimePoint> looked_;
    std::mutex mutex_;
    Held held_;
};

}  // namespace smc::ivshmem
