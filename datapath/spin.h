// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Whether to look again for a moment before sleeping. To be woken costs the one who wakes a system call, and the one
// who sleeps some tens of microseconds; to look in vain costs processor time that others could use. So it is done only
// where it pays: after a pause that was short, and as long as it was not in vain too often. One of these for each kind
// of pause, because they differ: an application that answers at once, and a peer that is far away.
#pragma once

#include <algorithm>
#include <chrono>

#include "smc/time.h"

namespace smc {

class Spin {
 public:
    using Time = std::chrono::microseconds;

    // It sleeps from `now` on. For how long to look first; 0: not at all. `most`: no longer than that.
    [[nodiscard]] Time before_sleep(TimePoint now, Time most) {
        slept_at_ = now;
        spins_ = most.count() > 0 && last_pause_ <= kWorthIt && rest_ == 0;
        if (rest_ > 0 && last_pause_ <= kWorthIt) {
            rest_--;
        }
        return spins_ ? most : Time{0};
    }
    // It has looked for so long, in vain, and sleeps on.
    void over() {
        spins_ = false;
        if (++vain_ >= kVainInARow) {
            vain_ = 0;
            rest_ = next_rest_;
            next_rest_ = std::min(2 * next_rest_, kLongestRest);
        }
    }
    // Something has come.
    void woken(TimePoint now) {
        last_pause_ = std::chrono::duration_cast<Time>(now - slept_at_);
        if (spins_) {
            vain_ = 0;
            next_rest_ = kFirstRest;
        }
    }

 private:
    static constexpr Time kWorthIt{200};        // a pause that may become shorter than what is looked for
    static constexpr unsigned kVainInARow = 4;  // then not for a while, which is counted in pauses
    static constexpr unsigned kFirstRest = 16, kLongestRest = 1024;

    TimePoint slept_at_{};
    Time last_pause_ = Time::max();
    bool spins_ = false;
    unsigned vain_ = 0, rest_ = 0, next_rest_ = kFirstRest;
};

}  // namespace smc
