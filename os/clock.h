// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The only place in the agent and the library that reads a clock (the test check.clock looks for others). Code that
// decides by time gets the time from its caller, so a test can give it any time.
#pragma once

#include <time.h>

#include <chrono>
#include <cstdint>

namespace smc::os {

inline std::chrono::steady_clock::time_point now() {
    return std::chrono::steady_clock::now();
}

// Calendar time, for display.
inline std::chrono::system_clock::time_point wall_now() {
    return std::chrono::system_clock::now();
}

// CLOCK_MONOTONIC in nanoseconds, the clock of the BPF programs.
inline std::uint64_t monotonic_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace smc::os
