// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An answer that takes time to make, and that anybody may ask for as often as he likes.
#pragma once

#include <chrono>
#include <string>

namespace smc {

// It is given again for four times as long as its making took: no more than a fifth of the thread's time is spent on
// it, and an answer is never older than that.
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
