// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The agent's log: one line per fact, lower case, "name value" pairs. error: the operator must act; warn:
// something is not as it should be; info: life cycle and refusals; debug: every connection.
#pragma once

#include <spdlog/spdlog.h>

#include <chrono>
#include <map>
#include <string>

namespace smc {

inline const std::shared_ptr<spdlog::logger>& log() {
    static const std::shared_ptr<spdlog::logger> logger = spdlog::default_logger();
    return logger;
}

// Lets a burst of lines of one kind through and then says how many it kept back. Control thread only.
class LogLimiter {
 public:
    // True if the line may be written; `held_back` then tells how many of this kind were not.
    bool admit(const std::string& kind, std::uint64_t& held_back) {
        Kind& k = kinds_[kind];
        const auto now = std::chrono::steady_clock::now();
        if (now - k.since >= std::chrono::seconds(1)) {
            k.since = now;
            k.written = 0;
        }
        if (k.written >= kPerSecond) {
            k.held_back++;
            return false;
        }
        k.written++;
        held_back = std::exchange(k.held_back, 0);
        return true;
    }

 private:
    static constexpr unsigned kPerSecond = 5;
    struct Kind {
        std::chrono::steady_clock::time_point since;
        unsigned written = 0;
        std::uint64_t held_back = 0;
    };
    std::map<std::string, Kind> kinds_;
};

}  // namespace smc
