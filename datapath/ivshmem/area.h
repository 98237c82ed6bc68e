// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The shared area as one machine sees it: its slot among the peers, and blocks.
//
// Invariants:
//   A1  A block's word is the only truth about it, and changes by compare-and-swap: whoever dies between two stores
//       leaves blocks that carry his name, and no other trace.
//   A2  Blocks are given back by their owner, or, later, by anybody once that owner's slot is free or another's: who
//       still writes them has heard of the death long before.
//   A3  What decides is copied, and checked against the geometry that was computed here.
//   A4  No store goes outside the mapping, whatever the area holds.
//   A5  Who stood still may have lost its blocks, and those that it has attached, to others: everybody looks before he
//       reads or writes one. A run is given back from its first block on, so that one's word tells.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
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
    // A BAR, or a file. What nobody has used yet is laid out; what another version has laid out is refused. Takes a
    // slot, if there is one. `vfio`: what the memory is of, if it has interrupts.
    static Result<std::unique_ptr<Area>> open(const std::string& path, const Gid& gid);
    static Result<std::unique_ptr<Area>> open(Mapping mapping, const Gid& gid,
                                              std::unique_ptr<VfioDevice> vfio = nullptr);
    // Leaves its slot. What it still has is given back by the others, when nobody can write it any more.
    ~Area();
    Area(const Area&) = delete;
    Area& operator=(const Area&) = delete;

    // `count` blocks in a row; the number of the first. Nothing: there is no such run.
    std::optional<std::uint32_t> allocate(std::uint32_t count);
    // Those of these blocks that are its own, in the life that `owner` is the word of.
    void release(std::uint32_t first, std::uint32_t count, std::uint64_t owner);
    void release(std::uint32_t first, std::uint32_t count) { release(first, count, own_word()); }
    [[nodiscard]] std::uint64_t own_word() const { return owner_word(slot_, owner_); }
    [[nodiscard]] std::uint64_t word_of(std::uint32_t block) const { return word(block).load(); }
    // On a run from this block on, as long as its word is this, and for this life of this machine (A5).
    [[nodiscard]] smcd::Claim claim(std::uint32_t block, std::uint64_t word) const;
    [[nodiscard]] std::uint32_t blocks() const { return geometry_.blocks; }
    [[nodiscard]] std::uint32_t used() const;

    // The memory of a run. Empty: it is none.
    [[nodiscard]] std::span<std::uint8_t> run(std::uint32_t first, std::uint32_t count) const;
    [[nodiscard]] DmbHeader* header(std::uint32_t block) const;
    // Keeps the memory mapped.
    [[nodiscard]] std::shared_ptr<const void> memory() const { return mapping_; }

    // The slot of this peer, if it lives. Of several that say so the first.
    [[nodiscard]] std::optional<std::uint32_t> find(const Gid& gid) const;
    // This peer has a slot, and may not know yet that it is taken for dead.
    [[nodiscard]] bool may_write(const Gid& gid) const;
    // Who has a block, as a slot that lives; nothing: nobody.
    [[nodiscard]] std::optional<std::uint32_t> owner_of(std::uint32_t block) const;
    [[nodiscard]] Gid gid_of(std::uint32_t slot) const;
    [[nodiscard]] std::uint32_t slot() const { return slot_; }

    // Says that it lives: every kBeat, from one thread.
    void say_alive();
    // Finds out who does not, by time that was spent looking: who stood still himself takes nobody for dead. The time
    // that it counts as spent since the last look; nothing of it is long.
    std::chrono::steady_clock::duration look(TimePoint now);
    // False: it never had a slot, or that was taken from it because it was silent for too long: nothing is its own.
    [[nodiscard]] bool has_slot() const;
    // Another slot, for another life. What the one before had is nobody's. EBUSY: there is none.
    Result<void> take_slot();
    static constexpr std::chrono::milliseconds kBeat{250};
    static constexpr std::chrono::milliseconds kDead{5000};  // without a beat
    // Behind the end of a slot: as long as somebody who stands still keeps his own.
    static constexpr std::chrono::milliseconds kReclaimAfter = 3 * kDead;
    // These are written from here, whoever dies: not to be given back.
    using Held = std::multimap<std::uint32_t, std::uint32_t>;  // first -> count
    [[nodiscard]] Held::iterator hold(std::uint32_t first, std::uint32_t count);
    void drop(Held::iterator held);

    // Wakes who has that slot, and how often this one was woken.
    void ring(std::uint32_t slot) const;
    [[nodiscard]] std::uint32_t rung() const;
    // nullptr: it has none.
    [[nodiscard]] VfioDevice* vfio() const { return vfio_.get(); }
    // Everybody who may ring can interrupt this one, and interrupts nobody else by that: it need not look, if it says
    // that it sleeps.
    [[nodiscard]] bool is_interrupted_by_all() const;
    void say_sleeping(bool sleeps) const;

 private:
    struct Seen {
        std::uint64_t owner = 0, beat = 0;
        std::chrono::steady_clock::duration silent{};
        [[nodiscard]] bool dead() const { return owner != 0 && silent >= kDead; }
    };
    // A block that carries nobody's name who lives.
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
    std::atomic<std::uint32_t> slot_{kPeers};  // kPeers: it has none
    std::atomic<std::uint64_t> owner_{0};
    std::uint64_t beats_ = 0;  // of who says that it lives
    std::uint32_t next_ = 0;   // where to look for blocks
    std::vector<Seen> seen_;
    std::vector<Unowned> unowned_;  // by block
    std::optional<TimePoint> looked_;
    std::mutex mutex_;
    Held held_;
};

}  // namespace smc::ivshmem
