// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Caches an answer that takes time to make and that any client may request at any rate.
#pragma once

#include <chrono>
#include <string>

namespace smc {

// Each answer is reused for four times as long as it took to make, and no longer. So at most a fifth of the thread's
// time is spent on making it.
template <class Answer = std::string, class Clock = std::chrono::steady_clock>
class Kept {
 public:
    template <class Make>
    const Answer& get(const Make& make) {
        constexpr int kTimes = 4;
        const auto now = Clock::now();
        if (now >= until_) {
            answer_ = make();
            const auto made = Clock::now();
            until_ = made + kTimes * (made - now);
        }
        return answer_;
    }

 private:
    Answer answer_;
    typename Clock::time_point until_;
};

}  // namespace smc
