// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Whether the data path stands still, by looks at it. Free of I/O and of clocks.
#pragma once

#include <algorithm>
#include <chrono>

#include "smc/time.h"

namespace smc::loop {

class Standstill {
 public:
    // `beat`: from look to look. `longest`: it may not move for so long.
    Standstill(std::chrono::milliseconds beat, std::chrono::milliseconds longest) : beat_(beat), longest_(longest) {}

    // `moves`: it has come round since the look before. True: stands() has changed.
    bool look(bool moves, TimePoint now) {
        const bool before = stands();
        // One beat at most: who looks so late was not scheduled himself, and the data path was perhaps not, either.
        const auto passed = std::min<TimePoint::duration>(now - last_, beat_);
        stood_ = moves || last_ == TimePoint() ? TimePoint::duration(0) : stood_ + passed;
        last_ = now;
        return stands() != before;
    }
    [[nodiscard]] bool stands() const { return stood_ >= longest_; }

 private:
    TimePoint::duration beat_, longest_, stood_{0};
    TimePoint last_{};
};

// What is to be done now and then, by whoever comes by often.
class Every {
 public:
    explicit Every(std::chrono::milliseconds period) : period_(period) {}

    // True at the first question, and then once in each period.
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
