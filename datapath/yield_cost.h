// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Decides whether a thread may yield its processor. Where other threads keep the processor for long, the yielding
// thread gets it back late, and does better to sleep or to go on.
#pragma once

#include <algorithm>

#include "smc/time.h"

namespace smc {

class YieldCost {
 public:
    struct Terms {
        TimePoint::duration too_long;  // on average of the last calls
        TimePoint::duration longest;   // a single call counts as at most this, because it may be late for any reason
        TimePoint::duration rest;      // how long not to yield after the average was too long
        bool begins_anew;  // true: the average then begins at 0; false: it stays, so one more long call is too much
    };
    explicit YieldCost(const Terms& terms) : terms_(terms) {}

    [[nodiscard]] bool allows(TimePoint now) const { return now >= not_before_; }
    // A call took so long, and ended at `now`. It counts for an eighth of the average.
    void took(TimePoint::duration time, TimePoint now) {
        average_ += (std::min(time, terms_.longest) - average_) / 8;
        if (average_ > terms_.too_long) {
            not_before_ = now + terms_.rest;
            average_ = terms_.begins_anew ? TimePoint::duration{} : average_;
        }
    }

 private:
    Terms terms_;
    TimePoint::duration average_{};
    TimePoint not_before_{};
};

}  // namespace smc
