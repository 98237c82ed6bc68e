// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/ivshmem/area.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "os/clock.h"
#include "os/random.h"
#include "os/unique_fd.h"

namespace smc::ivshmem {

namespace {

constexpr auto kTimeout = std::chrono::seconds(2);   // for another machine that lays the area out
constexpr auto kLongest = std::chrono::seconds(10);  // for lay_out() altogether
constexpr std::uint32_t kFewestBlocks = 4;

std::uint64_t new_number() {
    std::uint64_t number = 0;
    while ((number & 0xffffffffffff) <= kReady) {
        number = random_number<std::uint64_t>();
    }
    return number;
}

template <class Number>
std::atomic_ref<Number> shared(Number& number) {
    return std::atomic_ref<Number>(number);
}

}  // namespace

Result<std::unique_ptr<Area>> Area::open(const std::string& path, const Gid& gid) {
    const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    struct stat status {};
    if (!fd || ::fstat(fd.get(), &status) != 0) {
        return last_error("opening ism.device " + path);
    }
    auto mapping = Mapping::shared(fd.get(), static_cast<std::size_t>(status.st_size));
    if (!mapping) {
        return mapping.error();
    }
    return open(std::move(*mapping), gid);
}

Result<std::unique_ptr<Area>> Area::open(Mapping mapping, const Gid& gid, std::unique_ptr<VfioDevice> vfio) {
    const Geometry geometry = geometry_of(mapping.bytes().size());
    if (geometry.blocks < kFewestBlocks) {
        return Error{ENOSPC, "the shared memory has " + std::to_string(mapping.bytes().size()) + " bytes: too few"};
    }
    std::unique_ptr<Area> area(new Area(std::move(mapping), geometry, gid, std::move(vfio)));
    if (auto done = area->lay_out(); !done) {
        return done.error();
    }
    (void)area->take_slot();  // if none is free, look() empties silent slots in time, and take_slot() is called again
    return area;
}

// If several machines come at once, one of them lays the area out; if it dies meanwhile, another one does. An area that
// is neither empty nor ours is left as it is. The tables of slots and words are not cleared, because a machine that
// stood still while laying out must not wipe what others have in them by then. New memory is zero; anything else in the
// tables looks like slots without a beat and blocks without an owner, which are freed in time.
Result<void> Area::lay_out() {
    auto& super = *reinterpret_cast<Superblock*>(mapping_->bytes().data());
    const auto state = shared(super.state);
    const std::uint64_t number = new_number();
    std::uint64_t seen = state.load();
    const auto begun = os::now();
    auto until = begun + kTimeout;
    while (seen != kReady) {
        const std::uint64_t magic = shared(super.magic).load();
        const std::uint32_t version = shared(super.version).load();
        const auto now = os::now();
        // `state` is set before anything else is written, so a magic number beside a state of 0 is not ours.
        const bool others = magic != 0 && seen == 0 && state.load() == 0;
        if ((magic != 0 && magic != kMagic) || (version != 0 && version != kVersion) || others) {
            return Error{EPROTO, "the shared memory is not empty, and has no layout of this version"};
        }
        if (now - begun >= kLongest) {
            return Error{ETIMEDOUT, "waiting for another machine to lay out the shared memory"};
        }
        if ((seen == 0 || now >= until) && state.compare_exchange_strong(seen, number)) {
            shared(super.magic).store(kMagic);
            shared(super.version).store(kVersion);
            shared(super.block_bytes).store(kBlock);
            shared(super.peers).store(kPeers);
            shared(super.blocks).store(geometry_.blocks);
            shared(super.data_offset).store(geometry_.data_offset);
            std::uint64_t mine = number;
            if (state.compare_exchange_strong(mine, kReady)) {
                break;
            }
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (const std::uint64_t changed = state.load(); changed != seen) {
            seen = changed;
            until = os::now() + kTimeout;
        }
    }
    if (shared(super.magic).load() != kMagic) {
        return Error{EPROTO, "the shared memory is not empty, and has no layout of this version"};
    }
    if (const std::uint32_t version = shared(super.version).load(); version != kVersion) {
        return Error{EPROTO, "the shared memory is laid out in version " + std::to_string(version) +
                                 ", this is version " + std::to_string(kVersion)};
    }
    if (shared(super.blocks).load() != geometry_.blocks || shared(super.block_bytes).load() != kBlock ||
        shared(super.peers).load() != kPeers || shared(super.data_offset).load() != geometry_.data_offset) {
        return Error{EPROTO, "the shared memory is laid out for another size"};
    }
    return {};
}

Result<void> Area::take_slot() {
    const std::uint64_t number = new_number();
    for (std::uint32_t slot = 0; slot < kPeers; slot++) {
        std::uint64_t nobody = 0;
        if (shared(peer(slot).owner).compare_exchange_strong(nobody, number)) {
            slot_ = slot;
            write_gid(slot, gid_);
            shared(peer(slot).sleeps).store(0);
            shared(peer(slot).position).store(vfio_ ? 1U + vfio_->position() : 0);
            owner_ = number;  // from here on say_alive() on its thread uses the slot
            return {};
        }
    }
    return Error{EBUSY, "all " + std::to_string(kPeers) + " slots of the shared memory are taken"};
}

Area::~Area() {
    if (slot_ < kPeers) {
        leave(slot_, owner_);
    }
}

// Clears the GID first, so that the next owner of the slot is not taken for this one.
void Area::leave(std::uint32_t slot, std::uint64_t owner) {
    if (shared(peer(slot).owner).load() == owner) {
        write_gid(slot, {});
        std::uint64_t theirs = owner;
        shared(peer(slot).owner).compare_exchange_strong(theirs, 0);
    }
}

void Area::write_gid(std::uint32_t slot, const Gid& gid) const {
    std::memcpy(peer(slot).gid, gid.bytes.data(), gid.bytes.size());
}

PeerSlot& Area::peer(std::uint32_t slot) const {
    return reinterpret_cast<PeerSlot*>(mapping_->bytes().data() + kPage)[slot];
}

std::atomic_ref<std::uint64_t> Area::word(std::uint32_t block) const {
    return shared(reinterpret_cast<std::uint64_t*>(mapping_->bytes().data() + geometry_.words_offset)[block]);
}

std::optional<std::uint32_t> Area::allocate(std::uint32_t count) {
    const std::uint64_t mine = owner_word(slot_, owner_);
    if (count == 0 || count > geometry_.blocks || slot_ >= kPeers) {
        return std::nullopt;
    }
    for (std::uint32_t tried = 0, first = next_; tried < geometry_.blocks; tried++, first++) {
        if (first + count > geometry_.blocks) {
            tried += geometry_.blocks - std::min(first, geometry_.blocks);
            first = 0;
        }
        std::uint32_t got = 0;
        for (; got < count; got++) {
            std::uint64_t nobody = 0;
            if (!word(first + got).compare_exchange_strong(nobody, mine)) {
                break;
            }
        }
        if (got == count) {
            next_ = first + count;
            return first;
        }
        release(first, got);
        tried += got;
        first += got;
    }
    return std::nullopt;
}

void Area::release(std::uint32_t first, std::uint32_t count, std::uint64_t owner) {
    for (std::uint32_t block = first; block < first + count && block < geometry_.blocks; block++) {
        std::uint64_t mine = owner;
        word(block).compare_exchange_strong(mine, 0);
    }
}

std::uint32_t Area::used() const {
    std::uint32_t count = 0;
    for (std::uint32_t block = 0; block < geometry_.blocks; block++) {
        count += word(block).load(std::memory_order_relaxed) != 0 ? 1 : 0;
    }
    return count;
}

std::span<std::uint8_t> Area::run(std::uint32_t first, std::uint32_t count) const {
    if (first >= geometry_.blocks || count > geometry_.blocks - first) {
        return {};
    }
    return mapping_->bytes().subspan(geometry_.data_offset + std::size_t{first} * kBlock, std::size_t{count} * kBlock);
}

DmbHeader* Area::header(std::uint32_t block) const {
    const auto bytes = run(block, 1);
    return bytes.empty() ? nullptr : reinterpret_cast<DmbHeader*>(bytes.data());
}

Gid Area::gid_of(std::uint32_t slot) const {
    Gid gid;
    std::memcpy(gid.bytes.data(), peer(slot).gid, gid.bytes.size());
    return gid;
}

std::optional<std::uint32_t> Area::find(const Gid& gid) const {
    for (std::uint32_t slot = 0; slot < kPeers; slot++) {
        const std::uint64_t owner = shared(peer(slot).owner).load();
        const bool dead = seen_[slot].dead() && seen_[slot].owner == owner;
        if (owner != 0 && owner != owner_ && !dead && gid_of(slot) == gid) {
            return slot;
        }
    }
    return std::nullopt;
}

bool Area::may_write(const Gid& gid) const {
    for (std::uint32_t slot = 0; slot < kPeers; slot++) {
        const std::uint64_t owner = shared(peer(slot).owner).load();
        if (owner != 0 && owner != owner_ && gid_of(slot) == gid) {
            return true;
        }
    }
    return false;
}

std::optional<std::uint32_t> Area::owner_of(std::uint32_t block) const {
    if (block >= geometry_.blocks) {
        return std::nullopt;
    }
    const std::uint64_t who = word(block).load();
    const auto slot = static_cast<std::uint32_t>(who >> 48) - 1;
    if (who == 0 || slot >= kPeers) {
        return std::nullopt;
    }
    const std::uint64_t owner = shared(peer(slot).owner).load();
    return owner != 0 && owner_word(slot, owner) == who ? std::optional(slot) : std::nullopt;
}

Area::Held::iterator Area::hold(std::uint32_t first, std::uint32_t count) {
    const std::lock_guard lock(mutex_);
    return held_.emplace(first, count);
}

void Area::drop(Held::iterator held) {
    const std::lock_guard lock(mutex_);
    held_.erase(held);
}

bool Area::is_held(std::uint32_t block) {
    const std::lock_guard lock(mutex_);
    return std::any_of(held_.begin(), held_.upper_bound(block),
                       [&](const auto& held) { return block < held.first + held.second; });
}

smcd::Claim Area::claim(std::uint32_t block, std::uint64_t word) const {
    auto* words = reinterpret_cast<std::uint64_t*>(mapping_->bytes().data() + geometry_.words_offset);
    const std::uint32_t slot = slot_;
    constexpr std::uint64_t kNobodys = ~std::uint64_t{0};
    return {&words[block], word, &peer(slot < kPeers ? slot : 0).owner, slot < kPeers ? owner_.load() : kNobodys};
}

bool Area::has_slot() const {
    return slot_ < kPeers && shared(peer(slot_).owner).load() == owner_;
}

// Writes the GID once more if needed: a machine that emptied the slot of its previous owner may have been late, and
// have cleared the GID of this one.
void Area::say_alive() {
    if (has_slot()) {
        shared(peer(slot_).beat).store(++beats_);
        if (gid_of(slot_) != gid_) {
            write_gid(slot_, gid_);
        }
    }
}

// A dead peer keeps its slot for another kDead, so that the other machines notice its death, too.
std::chrono::steady_clock::duration Area::look(TimePoint now) {
    const auto passed = std::min<std::chrono::steady_clock::duration>(now - looked_.value_or(now), 2 * kBeat);
    looked_ = now;
    for (std::uint32_t slot = 0; slot < kPeers; slot++) {
        const std::uint64_t owner = shared(peer(slot).owner).load(), beat = shared(peer(slot).beat).load();
        Seen& seen = seen_[slot];
        if (owner == owner_ || owner != seen.owner || beat != seen.beat) {
            seen = {owner, beat, {}};
            continue;
        }
        seen.silent += passed;
        if (owner != 0 && seen.silent >= 2 * kDead) {
            leave(slot, owner);
        }
    }
    reclaim_unowned(passed);
    return passed;
}

void Area::reclaim_unowned(std::chrono::steady_clock::duration passed) {
    for (std::uint32_t block = 0; block < geometry_.blocks; block++) {
        Unowned& unowned = unowned_[block];
        std::uint64_t who = word(block).load(std::memory_order_relaxed);
        if (who == 0 || owner_of(block) || who != unowned.word) {
            unowned = {who, {}};
            continue;
        }
        unowned.since += passed;
        if (unowned.since >= kReclaimAfter && !is_held(block)) {
            word(block).compare_exchange_strong(who, 0);
        }
    }
}

void Area::ring(std::uint32_t slot) const {
    if (slot >= kPeers) {
        return;
    }
    shared(peer(slot).rung).fetch_add(1);
    if (vfio_ && shared(peer(slot).sleeps).exchange(0) != 0) {
        vfio_->ring(static_cast<std::uint16_t>(shared(peer(slot).position).load() - 1));
    }
}

void Area::say_sleeping(bool sleeps) const {
    if (has_slot()) {
        shared(peer(slot_).sleeps).store(sleeps ? 1 : 0);
    }
}

// During an upgrade two agents of one machine have the same position, and only one of them gets the interrupts.
bool Area::is_interrupted_by_all() const {
    if (!vfio_ || !has_slot()) {
        return false;
    }
    for (std::uint32_t slot = 0; slot < kPeers; slot++) {
        const std::uint32_t position = shared(peer(slot).position).load();
        const std::uint64_t owner = shared(peer(slot).owner).load();
        if (owner != 0 && owner != owner_ && (position == 0 || position == 1U + vfio_->position())) {
            return false;
        }
    }
    return true;
}

std::uint32_t Area::rung() const {
    const std::uint32_t slot = slot_;
    return slot < kPeers ? shared(peer(slot).rung).load() : 0;
}

}  // namespace smc::ivshmem
