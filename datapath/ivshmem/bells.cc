// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/ivshmem/bells.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "os/clock.h"

namespace smc::ivshmem {

namespace {

using namespace std::chrono_literals;

// Behind the last ring it looks again and again for so long, and then after pauses of a part of the silence: what a
// wake-up costs at most, and what an idle fabric costs.
constexpr auto kLooksAgain = 50us;
constexpr auto kMostWithoutRest = 5ms;  // somebody may ring without end
// Where others keep the processor for long when it is offered to them, whoever sleeps is back sooner.
constexpr auto kKept = 2ms;
constexpr auto kKeptFor = 5ms;
constexpr auto kBeat = Area::kBeat / 2;
constexpr std::chrono::nanoseconds kShortestPause = 20us, kLongestPause = 1ms;
constexpr int kPartOfSilence = 4, kPartOfTime = 4;

}  // namespace

Bells::~Bells() {
    {
        const std::lock_guard lock(mutex_);
        stops_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void Bells::add(DmbHeader* header, int eventfd) {
    const std::lock_guard lock(mutex_);
    bells_[header] = eventfd;
    changed_.notify_all();
}

void Bells::remove(DmbHeader* header) {
    const std::lock_guard lock(mutex_);
    bells_.erase(header);
}

void Bells::listen() {
    auto now = os::now(), until = now, beat = now, rested = now, no_spin_until = now, last = now;
    std::unique_lock lock(mutex_);
    for (; !stops_; now = os::now()) {
        if (now >= beat) {
            area_->say_alive();
            beat = now + kBeat;
        }
        if (bells_.empty()) {
            changed_.wait_for(lock, kBeat);
            continue;
        }
        if (hear()) {
            until = now >= no_spin_until && now - rested < kMostWithoutRest ? now + kLooksAgain : now;
            last = now;
        }
        lock.unlock();
        if (now < until) {
            ::sched_yield();
            lock.lock();
            if (const auto back = os::now(); back - now > kKept) {
                no_spin_until = back + kKeptFor;
            }
        } else {
            lock.lock();
            changed_.wait_for(lock, std::clamp((now - last) / kPartOfSilence, kShortestPause, kLongestPause));
            rested = os::now();
        }
    }
}

// Whoever has the lock hears it, or there is a next time. Somebody may ring without end: engines hear for a part of
// their time only.
void Bells::look() {
    if (area_->rung() == heard_.load(std::memory_order_relaxed)) {
        return;
    }
    const auto now = os::now();
    if (now.time_since_epoch() < deaf_until_.load(std::memory_order_relaxed)) {
        return;
    }
    if (const std::unique_lock lock(mutex_, std::try_to_lock); lock) {
        hear();
        const auto end = os::now();
        deaf_until_.store((end + kPartOfTime * (end - now)).time_since_epoch(), std::memory_order_relaxed);
    }
}

bool Bells::hear() {
    const std::uint32_t rung = area_->rung();
    if (rung == heard_.exchange(rung)) {
        return false;
    }
    bool any = false;
    for (const auto& [header, eventfd] : bells_) {
        if (std::atomic_ref(header->rang).exchange(0) != 0) {
            const std::uint64_t one = 1;
            [[maybe_unused]] const auto written = ::write(eventfd, &one, sizeof one);
            any = true;
        }
    }
    return any;
}

OwnBell::OwnBell(std::shared_ptr<Bells> bells, DmbHeader* header, UniqueFd eventfd)
    : bells_(std::move(bells)), header_(header), eventfd_(std::move(eventfd)) {
    bells_->add(header_, eventfd_.get());
}

OwnBell::~OwnBell() {
    bells_->remove(header_);
}

void OwnBell::heard() {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto read = ::read(eventfd_.get(), &count, sizeof count);
}

}  // namespace smc::ivshmem
