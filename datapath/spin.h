// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Decides for how long a task is busy-polled before it sleeps. A wake-up costs the waking side a system call and the
// sleeping side some tens of microseconds; busy-polling in vain costs processor time that other threads could use. The
// time follows the last pauses: twice a pause that was short enough to be worth it, and half as long after each that
// was not, down to none. Each kind of pause has its own Spin, because they differ: an application that answers at once,
// and a peer that is far away.
#pragma once

#include <algorithm>
#include <chrono>

#include "smc/time.h"

namespace smc {

class Spin {
 public:
    using Time = std::chrono::microseconds;

    // The task is about to sleep. Returns for how long to busy-poll it first: at most `most`; 0: not at all.
    [[nodiscard]] Time before_sleep(TimePoint now, Time most) {
        slept_at_ = now;
        most_ = most;
        return std::min(time_, most);
    }
    // The task has been woken by an event, or has found one while busy-polling.
    void woken(TimePoint now) {
        const auto pause = std::chrono::duration_cast<Time>(now - slept_at_);
        if (most_ == Time{0}) {
            return;  // busy-polling was not allowed, which says nothing about what it is worth
        }
        if (pause <= most_) {
            time_ = std::clamp(2 * pause, kLeast, std::max(most_, kLeast));
        } else {
            time_ = time_ / 2 < kLeast ? Time{0} : time_ / 2;
        }
    }

 private:
    static constexpr Time kLeast{20};  // about what a wake-up costs

    TimePoint slept_at_{};
    Time most_{0}, time_{0};
};

}  // namespace smc
