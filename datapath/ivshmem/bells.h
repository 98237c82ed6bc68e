// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The doorbells of one machine, and the thread that listens for them while the engines sleep.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "datapath/ivshmem/area.h"
#include "datapath/lookout.h"
#include "datapath/smcd/dmb.h"
#include "os/unique_fd.h"

namespace smc::ivshmem {

class Bells final : public Lookout {
 public:
    explicit Bells(std::shared_ptr<Area> area) : area_(std::move(area)), thread_([this] { listen(); }) {}
    ~Bells() override;
    Bells(const Bells&) = delete;
    Bells& operator=(const Bells&) = delete;

    // Rung when `rang` of the header is; the eventfd is the caller's.
    void add(DmbHeader* header, int eventfd);
    void remove(DmbHeader* header);
    void look() override;

 private:
    void listen();
    bool hear();

    std::shared_ptr<Area> area_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<DmbHeader*, int> bells_;
    std::atomic<std::uint32_t> heard_{0};
    std::atomic<std::chrono::steady_clock::duration> deaf_until_{};  // the engines
    bool stops_ = false;
    std::thread thread_;  // behind everything that it uses
};

// The owner's: readable when it was rung.
class OwnBell final : public smcd::Doorbell {
 public:
    OwnBell(std::shared_ptr<Bells> bells, DmbHeader* header, UniqueFd eventfd);
    ~OwnBell() override;
    OwnBell(const OwnBell&) = delete;
    OwnBell& operator=(const OwnBell&) = delete;

    [[nodiscard]] int fd() const override { return eventfd_.get(); }
    void arm() override { std::atomic_ref(header_->armed).store(1); }
    void heard() override;
    void ring() override {}

 private:
    std::shared_ptr<Bells> bells_;
    DmbHeader* header_;
    UniqueFd eventfd_;
};

// The peer's.
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
