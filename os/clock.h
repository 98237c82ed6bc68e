// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The one place that asks the clocks (check.clock looks). What decides by time is told the time by whoever calls it, so
// a test gives it any.
#pragma once

#include <time.h>

#include <chrono>
#include <cstdint>

namespace smc::os {

inline std::chrono::steady_clock::time_point now() {
    return std::chrono::steady_clock::now();
}

// Of the calendar, to be shown.
inline std::chrono::system_clock::time_point wall_now() {
    return std::chrono::system_clock::now();
}

// CLOCK_MONOTONIC in nanoseconds, as BPF programs count.
inline std::uint64_t monotonic_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace smc::os
