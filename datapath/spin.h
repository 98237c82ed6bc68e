// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Decides whether a task busy-polls for a moment before it sleeps. A wake-up costs the waking side a system call and
// the sleeping side some tens of microseconds; busy-polling in vain costs processor time that other threads could use.
// So a task busy-polls only if its last pause was short, and stops for a while after too many vain attempts. Each kind
// of pause has its own Spin, because they differ: an application that answers at once, and a peer that is far away.
#pragma once

#include <algorithm>
#include <chrono>

#include "smc/time.h"

namespace smc {

class Spin {
 public:
    using Time = std::chrono::microseconds;

    // The task is about to sleep. Returns for how long to busy-poll first: `most`, or 0 for not at all.
    [[nodiscard]] Time before_sleep(TimePoint now, Time most) {
        slept_at_ = now;
        spins_ = most.count() > 0 && last_pause_ <= kWorthIt && rest_ == 0;
        if (rest_ > 0 && last_pause_ <= kWorthIt) {
            rest_--;
        }
        return spins_ ? most : Time{0};
    }
    // That time is over, nothing has come, and the task sleeps.
    void over() {
        spins_ = false;
        if (++vain_ >= kVainInARow) {
            vain_ = 0;
            rest_ = next_rest_;
            next_rest_ = std::min(2 * next_rest_, kLongestRest);
        }
    }
    // The task has been woken by an event, or has found one while busy-polling.
    void woken(TimePoint now) {
        last_pause_ = std::chrono::duration_cast<Time>(now - slept_at_);
        if (spins_) {
            vain_ = 0;
            next_rest_ = kFirstRest;
        }
    }

 private:
    static constexpr Time kWorthIt{200};        // without wake-ups a pause this short may become shorter than `most`
    static constexpr unsigned kVainInARow = 4;  // after so many vain attempts the task rests
    // A rest is counted in pauses without busy-polling; it doubles until an attempt succeeds.
    static constexpr unsigned kFirstRest = 16, kLongestRest = 1024;

    TimePoint slept_at_{};
    Time last_pause_ = Time::max();
    bool spins_ = false;
    unsigned vain_ = 0, rest_ = 0, next_rest_ = kFirstRest;
};

}  // namespace smc
