// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The doorbells of one machine, and the thread that listens for them while the engines sleep.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "datapath/busy_poll.h"
#include "datapath/ivshmem/area.h"
#include "datapath/smcd/dmb.h"
#include "os/unique_fd.h"

namespace smc::ivshmem {

class OwnBell;

class Doorbells final : public BusyPoll {
 public:
    explicit Doorbells(std::shared_ptr<Area> area);
    ~Doorbells() override;
    Doorbells(const Doorbells&) = delete;
    Doorbells& operator=(const Doorbells&) = delete;

    // From add() to remove(), OwnBell::tell() is called after rings.
    void add(OwnBell* bell);
    void remove(OwnBell* bell);
    void look() override;
    // Whether the listening thread sleeps until an interrupt; false: it polls at intervals.
    [[nodiscard]] bool sleeps() const { return sleeps_; }

 private:
    void listen();
    bool hear();
    void tell_who_was_disarmed();
    [[nodiscard]] bool may_sleep();
    void pause(std::chrono::nanoseconds time, bool until_interrupted);
    void sleep(std::chrono::nanoseconds time);

    std::shared_ptr<Area> area_;
    std::mutex mutex_;
    UniqueFd changed_;  // an eventfd that wakes the listening thread after add() and for the end
    std::set<OwnBell*> doorbells_;
    std::atomic<std::uint32_t> heard_{0};                            // Area::rung() of the last hear()
    std::atomic<std::chrono::steady_clock::duration> deaf_until_{};  // until then look() does nothing
    std::atomic<bool> sleeps_{false};
    bool stops_ = false;
    std::thread thread_;  // the last member, because it uses the others
};

// The doorbell of a DMB of this machine: its descriptor is readable when the peer has rung.
class OwnBell final : public smcd::Doorbell {
 public:
    OwnBell(std::shared_ptr<Doorbells> bells, DmbHeader* header, UniqueFd eventfd, const smcd::Claim& claim);
    ~OwnBell() override;
    OwnBell(const OwnBell&) = delete;
    OwnBell& operator=(const OwnBell&) = delete;

    [[nodiscard]] int fd() const override { return eventfd_.get(); }
    void arm() override;
    void heard() override;
    void ring() override {}

    // Makes the descriptor readable if the peer has rung. False: it has not.
    bool tell();
    // Makes it readable, too, if `armed` was cleared without a ring, because then the peer will not ring.
    void tell_if_disarmed();

 private:
    std::shared_ptr<Doorbells> doorbells_;
    DmbHeader* header_;
    UniqueFd eventfd_;
    smcd::Claim claim_;
    std::atomic<bool> waits_{false};  // armed, and not heard() since
};

// The doorbell of a peer's DMB, which is rung from here.
class PeersBell final : public smcd::Doorbell {
 public:
    PeersBell(std::shared_ptr<Area> area, DmbHeader* header, std::uint32_t slot)
        : area_(std::move(area)), header_(header), slot_(slot) {}

    [[nodiscard]] int fd() const override { return -1; }
    void arm() override {}
    void heard() override {}
    void ring() override {
        if (std::atomic_ref(header_->armed).exchange(0) != 0) {
            std::atomic_ref(header_->rang).store(1);
            area_->ring(slot_);
        }
    }

 private:
    std::shared_ptr<Area> area_;
    DmbHeader* header_;
    std::uint32_t slot_;
};

}  // namespace smc::ivshmem
