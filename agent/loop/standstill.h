// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Decides from periodic looks whether the data path stands still. Free of I/O and of clocks.
#pragma once

#include <algorithm>
#include <chrono>

#include "smc/time.h"

namespace smc::loop {

class Standstill {
 public:
    // `beat`: interval between looks. `longest`: after this time without a move, the data path stands still.
    Standstill(std::chrono::milliseconds beat, std::chrono::milliseconds longest) : beat_(beat), longest_(longest) {}

    // `moves`: every engine has completed an iteration since the previous look. Returns true if stands_still() has
    // changed.
    bool look(bool moves, TimePoint now) {
        const bool before = stands_still();
        // Counts one beat at most: when a look is late, this thread was not scheduled, and perhaps neither was the
        // data path.
        const auto passed = std::min<TimePoint::duration>(now - last_, beat_);
        stood_ = moves || last_ == TimePoint() ? TimePoint::duration(0) : stood_ + passed;
        last_ = now;
        return stands_still() != before;
    }
    [[nodiscard]] bool stands_still() const { return stood_ >= longest_; }
    // It has stood still for so long that it will not go on by itself.
    [[nodiscard]] bool hangs() const { return stands_still() && stood_ >= kHang; }

 private:
    static constexpr std::chrono::seconds kHang{10};

    TimePoint::duration beat_, longest_, stood_{0};
    TimePoint last_{};
};

// Tells a caller that asks often when a periodic task is due.
class Every {
 public:
    explicit Every(std::chrono::milliseconds period) : period_(period) {}

    // True at the first call, and then once in each period.
    bool due(TimePoint now) {
        if (now < next_) {
            return false;
        }
        next_ = now + period_;
        return true;
    }

 private:
    TimePoint::duration period_;
    TimePoint next_{};
};

}  // namespace smc::loop
