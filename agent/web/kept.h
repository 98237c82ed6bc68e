// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Caches an answer that takes time to make and that any client may request at any rate.
#pragma once

#include <chrono>
#include <string>

namespace smc {

// Each answer is reused for four times as long as it took to make, and no longer. So at most a fifth of the thread's
// time is spent on making it.
template <class Clock = std::chrono::steady_clock>
class Kept {
 public:
    template <class Make>
    const std::string& get(const Make& make) {
        constexpr int kTimes = 4;
        const auto now = Clock::now();
        if (now >= until_) {
            text_ = make();
            const auto made = Clock::now();
            until_ = made + kTimes * (made - now);
        }
        return text_;
    }

 private:
    std::string text_;
    typename Clock::time_point until_;
};

}  // namespace smc
