// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The `ivshmem` ISM provider: DMBs in memory that virtual machines of one host share, a BAR of QEMU's ivshmem-plain or
// ivshmem-doorbell.
//
// A peer that publishes something increments the word `rung` in the slot of the DMB's owner. The owner's engines poll
// that word while they are awake. For the time when they sleep, a thread of the owner polls it too: often after a ring,
// and the more rarely the longer there is none. If every machine that shares the area can interrupt the owner, the
// thread sleeps until an interrupt instead. Engine or thread then makes the DMB's eventfd readable.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>

#include "datapath/ivshmem/area.h"
#include "datapath/smcd/fabric.h"

namespace smc::ivshmem {

class Doorbells;

class IvshmemFabric final : public smcd::Fabric {
 public:
    using OnPeerLost = std::function<void(const Gid&)>;

    // `path`: the BAR, or a file.
    static Result<std::unique_ptr<IvshmemFabric>> open(asio::io_context& io, const std::string& path, const Gid& gid,
                                                       Chid chid, OnPeerLost on_peer_lost);
    ~IvshmemFabric() override;
    IvshmemFabric(const IvshmemFabric&) = delete;
    IvshmemFabric& operator=(const IvshmemFabric&) = delete;

    [[nodiscard]] const char* provider() const override { return "ivshmem"; }
    [[nodiscard]] const Gid& gid() const override { return gid_; }
    [[nodiscard]] Chid chid() const override { return chid_; }
    [[nodiscard]] std::string device() const override { return device_; }
    [[nodiscard]] const char* wake_up() const override;
    [[nodiscard]] bool peers_die_silently() const override { return true; }
    [[nodiscard]] std::shared_ptr<BusyPoll> busy_poll() const override;
    Result<Registered> register_dmb(const Gid& peer, std::uint32_t bytes) override;
    void deregister(DmbToken token) override;
    [[nodiscard]] std::size_t registered() const override { return own_.size(); }
    // False: no peer can reach this node until a slot of the area is free.
    [[nodiscard]] bool has_slot() const { return !lost_; }
    [[nodiscard]] Result<void> reach(const Gid& peer) override;
    void attach(const Gid& peer, DmbToken token, std::uint32_t bytes, std::chrono::milliseconds timeout,
                OnAttached on_attached) override;

 private:
    struct Own {
        std::uint32_t first = 0, count = 0;
        std::uint64_t owner = 0;  // Area::own_word() when it was registered
        Gid peer;
        std::weak_ptr<const void> held;                // not expired: the data path uses the DMB
        std::chrono::steady_clock::duration absent{};  // how long the peer has had no slot
    };

    IvshmemFabric(asio::io_context& io, std::unique_ptr<Area> area, std::string device, const Gid& gid, Chid chid,
                  OnPeerLost on_peer_lost);
    void beat();
    // `passed`: since the last call.
    void look_for_the_dead(std::chrono::steady_clock::duration passed);
    void free_limbo(std::chrono::steady_clock::duration passed);
    [[nodiscard]] Result<smcd::Dmb> attached(const Gid& peer, DmbToken token, std::uint32_t bytes);

    std::shared_ptr<Area> area_;
    std::string device_;
    Gid gid_;
    Chid chid_;
    OnPeerLost on_peer_lost_;
    asio::steady_timer timer_;
    std::map<DmbToken, Own> own_;
    std::list<Own> limbo_;  // deregistered DMBs that a peer may still write, or the data path still reads
    std::set<Gid> peers_;   // peers that were reached, or whose DMBs were attached
    // A machine that has lost its slot takes no other one for so long: its peers count kDead before they give back what
    // it had attached.
    static constexpr std::chrono::milliseconds kWithoutSlot = Area::kDead + 4 * Area::kBeat;
    bool lost_;                                                        // this node has no slot
    std::chrono::steady_clock::duration without_slot_ = kWithoutSlot;  // for how long
    std::shared_ptr<Doorbells> doorbells_;
};

}  // namespace smc::ivshmem
