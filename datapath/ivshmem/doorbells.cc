// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/ivshmem/doorbells.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "os/clock.h"

namespace smc::ivshmem {

namespace {

using namespace std::chrono_literals;

// After a ring the listening thread busy-polls for kLooksAgain. Then it polls after pauses of 1/kPartOfSilence of the
// time since the last ring. These pauses bound the latency of a wake-up, and the processor time of an idle fabric.
constexpr auto kLooksAgain = 50us;
constexpr auto kMostWithoutRest = 5ms;  // without a pause: a peer may ring without end
// If other threads keep the processor for kKept after a sched_yield(), there is no busy-polling for kKeptFor: a thread
// that sleeps gets the processor back sooner.
constexpr auto kKept = 2ms;
constexpr auto kKeptFor = 5ms;
constexpr auto kBeat = Area::kBeat / 2;
constexpr std::chrono::nanoseconds kShortestPause = 20us, kLongestPause = 1ms;
constexpr int kPartOfSilence = 4, kPartOfTime = 4;
// About the latency of an interrupt: the thread waits for one instead of a pause that is at least as long.
constexpr auto kInterrupt = 50us;

void tell_eventfd(int fd) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(fd, &one, sizeof one);
}

}  // namespace

Doorbells::Doorbells(std::shared_ptr<Area> area)
    : area_(std::move(area)), changed_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), thread_([this] { listen(); }) {}

Doorbells::~Doorbells() {
    {
        const std::lock_guard lock(mutex_);
        stops_ = true;
    }
    tell_eventfd(changed_.get());
    thread_.join();
}

void Doorbells::add(OwnBell* bell) {
    const std::lock_guard lock(mutex_);
    doorbells_.insert(bell);
    tell_eventfd(changed_.get());
}

void Doorbells::remove(OwnBell* bell) {
    const std::lock_guard lock(mutex_);
    doorbells_.erase(bell);
}

void Doorbells::listen() {
    auto now = os::now(), until = now, beat = now, rested = now, no_spin_until = now, last = now;
    std::unique_lock lock(mutex_);
    for (; !stops_; now = os::now()) {
        if (now >= beat) {
            area_->say_alive();
            tell_who_was_disarmed();
            sleeps_ = may_sleep();
            beat = now + kBeat;
        }
        if (hear()) {
            until = now >= no_spin_until && now - rested < kMostWithoutRest ? now + kLooksAgain : now;
            last = now;
        }
        const bool idle = doorbells_.empty();
        lock.unlock();
        if (idle) {
            pause(kBeat, false);
        } else if (now < until) {
            ::sched_yield();
            if (const auto back = os::now(); back - now > kKept) {
                no_spin_until = back + kKeptFor;
            }
        } else {
            const auto time = std::clamp((now - last) / kPartOfSilence, kShortestPause, kLongestPause);
            if (sleeps_ && time >= kInterrupt) {
                sleep(beat - now);
            } else {
                pause(time, false);
            }
            rested = os::now();
        }
        lock.lock();
    }
}

// Asks for the interrupts again each time that this thread had to poll: an agent of this machine that was to take over
// and has ended may have had them meanwhile.
bool Doorbells::may_sleep() {
    return area_->is_interrupted_by_all() && (sleeps_ || area_->vfio()->ask_for_interrupts());
}

void Doorbells::pause(std::chrono::nanoseconds time, bool until_interrupted) {
    const VfioDevice* vfio = until_interrupted ? area_->vfio() : nullptr;
    pollfd heard[] = {{changed_.get(), POLLIN, 0}, {vfio != nullptr ? vfio->interrupt() : -1, POLLIN, 0}};
    const timespec limit{time / 1s, (time % 1s).count()};
    if (::ppoll(heard, std::size(heard), &limit, nullptr) <= 0) {
        return;
    }
    if (heard[0].revents != 0) {
        std::uint64_t count = 0;
        [[maybe_unused]] const auto read = ::read(changed_.get(), &count, sizeof count);
    }
    if (heard[1].revents != 0) {
        vfio->heard();
    }
}

// Either the ringing machine sees that this thread sleeps, or this thread sees the ring. As any machine can write these
// words, the thread never sleeps for ever, and never skips its pause.
void Doorbells::sleep(std::chrono::nanoseconds time) {
    area_->say_sleeping(true);
    const bool rung = area_->rung() != heard_.load();
    pause(rung ? kShortestPause : time, !rung);
    area_->say_sleeping(false);
}

// If another thread has the lock, that thread or the next look() handles the ring. A peer may ring without end, so
// engines spend at most a fifth of their time here (kPartOfTime).
void Doorbells::look() {
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

bool Doorbells::hear() {
    const std::uint32_t rung = area_->rung();
    if (rung == heard_.exchange(rung)) {
        return false;
    }
    bool any = false;
    for (OwnBell* bell : doorbells_) {
        any = bell->tell() || any;
    }
    return any;
}

// Any machine that shares the area can clear `armed` of a bell: without this wake-up the connection would stall.
void Doorbells::tell_who_was_disarmed() {
    for (OwnBell* bell : doorbells_) {
        bell->tell_if_disarmed();
    }
}

OwnBell::OwnBell(std::shared_ptr<Doorbells> bells, DmbHeader* header, UniqueFd eventfd, const smcd::Claim& claim)
    : doorbells_(std::move(bells)), header_(header), eventfd_(std::move(eventfd)), claim_(claim) {
    doorbells_->add(this);
}

OwnBell::~OwnBell() {
    doorbells_->remove(this);
}

void OwnBell::arm() {
    if (claim_.is_valid()) {
        std::atomic_ref(header_->armed).store(1);
        waits_ = true;
    }
}

bool OwnBell::tell() {
    // Only a load at first: exchange() on each bell at each ring would take the cache lines from the ringing machines.
    if (std::atomic_ref(header_->rang).load() == 0 || !claim_.is_valid() ||
        std::atomic_ref(header_->rang).exchange(0) == 0) {
        return false;
    }
    tell_eventfd(eventfd_.get());
    return true;
}

void OwnBell::tell_if_disarmed() {
    if (waits_ && claim_.is_valid() && std::atomic_ref(header_->armed).load() == 0) {
        waits_ = false;
        std::atomic_ref(header_->rang).store(1);
        tell();
    }
}

void OwnBell::heard() {
    waits_ = false;
    std::uint64_t count = 0;
    [[maybe_unused]] const auto read = ::read(eventfd_.get(), &count, sizeof count);
}

}  // namespace smc::ivshmem
