// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/ivshmem/ivshmem_fabric.h"

#include <sys/eventfd.h>

#include <cstring>

#include "datapath/ivshmem/device.h"
#include "datapath/ivshmem/doorbells.h"
#include "os/clock.h"
#include "os/random.h"

namespace smc::ivshmem {

namespace {

// The low 16 bits are the number of the first block, by which the peer finds the DMB. The rest is random, so that no
// other machine can guess the token.
DmbToken new_token(std::uint32_t block) {
    std::uint64_t token = 0;
    while (token >> 16 == 0) {
        token = (random_number<std::uint64_t>() & ~std::uint64_t{0xffff}) | block;
    }
    return DmbToken{token};
}

std::uint32_t blocks_for(std::uint32_t bytes) {
    return round_up(std::uint64_t{kPage} + bytes, kBlock);
}

Result<std::unique_ptr<Area>> open_area(const std::string& path, const Gid& gid) {
    auto vfio = VfioDevice::open(path);
    if (!vfio) {
        return vfio.error();
    }
    if (*vfio) {
        auto memory = (*vfio)->memory();
        return memory ? Area::open(std::move(*memory), gid, std::move(*vfio)) : memory.error();
    }
    const auto enabled = enable(path);
    return enabled ? Area::open(path, gid) : enabled.error();
}

}  // namespace

Result<std::unique_ptr<IvshmemFabric>> IvshmemFabric::open(asio::io_context& io, const std::string& path,
                                                           const Gid& gid, Chid chid, OnPeerLost on_peer_lost) {
    auto area = open_area(path, gid);
    if (!area) {
        return area.error();
    }
    std::unique_ptr<IvshmemFabric> fabric(
        new IvshmemFabric(io, std::move(*area), device_of(path), gid, chid, std::move(on_peer_lost)));
    fabric->beat();
    return fabric;
}

IvshmemFabric::IvshmemFabric(asio::io_context& io, std::unique_ptr<Area> area, std::string device, const Gid& gid,
                             Chid chid, OnPeerLost on_peer_lost)
    : area_(std::move(area)),
      device_(std::move(device)),
      gid_(gid),
      chid_(chid),
      on_peer_lost_(std::move(on_peer_lost)),
      timer_(io),
      lost_(!area_->has_slot()),
      doorbells_(std::make_shared<Doorbells>(area_)) {}

IvshmemFabric::~IvshmemFabric() = default;

const char* IvshmemFabric::wake_up() const {
    return doorbells_->sleeps() ? "interrupts" : "looking";
}

std::shared_ptr<BusyPoll> IvshmemFabric::busy_poll() const {
    return doorbells_;
}

Result<IvshmemFabric::Registered> IvshmemFabric::register_dmb(const Gid& peer, std::uint32_t bytes) {
    if (lost_) {
        return Error{ENODEV, "registering a DMB: this machine has no slot in the shared memory"};
    }
    const std::uint32_t count = blocks_for(bytes);
    const auto first = area_->allocate(count);
    if (!first) {
        return Error{ENOSPC, "registering a DMB: the shared memory is full"};
    }
    UniqueFd eventfd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!eventfd) {
        area_->release(*first, count);
        return last_error("creating a doorbell");
    }
    DmbHeader* header = area_->header(*first);
    std::uint8_t* start = area_->run(*first, count).data();
    std::memset(start, 0, kPage + cdc::kSmcdBytes);
    std::memcpy(header->peer_gid, peer.bytes.data(), peer.bytes.size());
    header->bytes = bytes;
    const DmbToken token = new_token(*first);
    const smcd::Claim claim = area_->claim(*first, area_->own_word());
    auto bell = std::make_unique<OwnBell>(doorbells_, header, std::move(eventfd), claim);
    // A shared_ptr of its own, whose weak_ptr (Own::held) expires when the data path is done with this DMB.
    const std::shared_ptr<const void> memory = std::make_shared<std::shared_ptr<const void>>(area_->memory());
    auto dmb =
        std::make_shared<smcd::Dmb>(memory, start + kPage, bytes, std::move(bell), smcd::Lease(&header->lease, claim));
    own_.emplace(token, Own{*first, count, area_->own_word(), peer, memory});
    std::atomic_ref(header->token).store(static_cast<std::uint64_t>(token));  // from here on it can be attached
    return Registered{token, std::move(dmb)};
}

// The blocks are given back later (free_limbo()): when the data path here is done with them, and the peer has let go of
// them or is dead.
void IvshmemFabric::deregister(DmbToken token) {
    const auto it = own_.find(token);
    if (it == own_.end()) {
        return;
    }
    if (area_->claim(it->second.first, it->second.owner).is_valid()) {
        DmbHeader* header = area_->header(it->second.first);
        std::atomic_ref(header->token).store(0);
        std::uint32_t nobody = kNobody;  // a peer that has not attached it yet cannot do so any more
        std::atomic_ref(header->attached).compare_exchange_strong(nobody, kLetGo);
    }
    limbo_.push_back(it->second);
    own_.erase(it);
}

Result<void> IvshmemFabric::reach(const Gid& peer) {
    if (!lost_ && area_->find(peer)) {
        peers_.insert(peer);
        return {};
    }
    return Error{EHOSTUNREACH, "reaching " + peer.text() + " by the shared memory"};
}

void IvshmemFabric::attach(const Gid& peer, DmbToken token, std::uint32_t bytes, std::chrono::milliseconds,
                           OnAttached on_attached) {
    on_attached(attached(peer, token, bytes));
}

// Values that are read from the area are copied, and must fit the geometry that was computed here (A3).
Result<smcd::Dmb> IvshmemFabric::attached(const Gid& peer, DmbToken token, std::uint32_t bytes) {
    const auto refuse = [&](const char* why) {
        return Error{EPROTO, "attaching a DMB of " + peer.text() + ": " + why};
    };
    const auto value = static_cast<std::uint64_t>(token);
    const auto first = static_cast<std::uint32_t>(value & 0xffff);
    const std::uint32_t count = blocks_for(bytes);
    const auto run = area_->run(first, count);
    if (lost_ || run.empty() || value == 0) {  // 0 is the token of a header that is no DMB's
        return refuse("it is not in the area");
    }
    const auto slot = area_->owner_of(first);
    if (!slot || area_->gid_of(*slot) != peer) {
        return refuse("it is not that peer's");
    }
    for (std::uint32_t block = first + 1; block < first + count; block++) {
        if (area_->owner_of(block) != slot) {
            return refuse("it is shorter than announced");
        }
    }
    DmbHeader* header = area_->header(first);
    Gid wanted;
    std::memcpy(wanted.bytes.data(), header->peer_gid, wanted.bytes.size());
    if (std::atomic_ref(header->token).load() != value || wanted != gid_ ||
        std::atomic_ref(header->bytes).load() != bytes) {
        return refuse("there is none with that token for this node");
    }
    const std::uint64_t word = area_->word_of(first);
    std::uint32_t nobody = kNobody;
    if (!std::atomic_ref(header->attached).compare_exchange_strong(nobody, kAttached)) {
        return refuse("it is attached already");
    }
    if (std::atomic_ref(header->token).load() != value || area_->owner_of(first) != slot) {
        std::uint32_t mine = kAttached;  // its owner took it back meanwhile
        std::atomic_ref(header->attached).compare_exchange_strong(mine, kNobody);
        return refuse("its owner has taken it back");
    }
    const auto held = area_->hold(first, count);
    const smcd::Claim claim = area_->claim(first, word);
    peers_.insert(peer);
    // Its deleter tells the owner that this node writes no more, if the memory is still that DMB.
    const std::shared_ptr<const void> memory(static_cast<const void*>(header), [area = area_, first, claim, held,
                                                                                value](const void*) {
        std::uint32_t mine = kAttached;
        const std::uint64_t now = std::atomic_ref(area->header(first)->token).load();  // 0: its owner deregistered it
        if (claim.is_valid() && (now == value || now == 0)) {
            std::atomic_ref(area->header(first)->attached).compare_exchange_strong(mine, kLetGo);
        }
        area->drop(held);
    });
    return smcd::Dmb(memory, run.data() + kPage, bytes, std::make_unique<PeersBell>(area_, header, *slot),
                     smcd::Lease(&header->lease, claim));
}

void IvshmemFabric::look_for_the_dead(std::chrono::steady_clock::duration passed) {
    const auto lose = [this](const Gid& gid) {
        peers_.erase(gid);
        on_peer_lost_(gid);
    };
    if (!lost_ && !area_->has_slot()) {
        lost_ = true;
        without_slot_ = {};
        for (const Gid& gid : std::set(peers_)) {
            lose(gid);
        }
    }
    for (const Gid& gid : std::set(peers_)) {
        if (!area_->find(gid)) {
            lose(gid);
        }
    }
    // Takes another slot when no DMB of the lost one is left, and when its peers have given back what it had attached:
    // the new slot has the same GID.
    without_slot_ += passed;
    if (lost_ && own_.empty() && limbo_.empty() && without_slot_ >= kWithoutSlot && area_->take_slot()) {
        lost_ = false;
    }
}

// Gives back the blocks of a DMB when the data path here is done with it and the peer cannot write it any more: the
// peer has let go, has never attached it, or has been without a slot for so long that it must have noticed, even if it
// stood still (A2).
void IvshmemFabric::free_limbo(std::chrono::steady_clock::duration passed) {
    limbo_.remove_if([&](Own& own) {
        const bool written = std::atomic_ref(area_->header(own.first)->attached).load() == kAttached;
        own.absent = area_->may_write(own.peer) ? decltype(own.absent){} : own.absent + passed;
        if (!own.held.expired() || (written && !lost_ && own.absent < Area::kDead)) {
            return false;
        }
        if (!lost_) {  // else their word names no owner of a slot, and Area::look() gives them back
            area_->release(own.first, own.count, own.owner);
        }
        return true;
    });
}

void IvshmemFabric::beat() {
    const auto passed = area_->look(os::now());
    look_for_the_dead(passed);
    free_limbo(passed);
    timer_.expires_after(Area::kBeat);
    timer_.async_wait([this](std::error_code error) {
        if (!error) {
            beat();
        }
    });
}

}  // namespace smc::ivshmem
