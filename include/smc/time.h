// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Points in time that are passed to the protocol machines. The library never reads a clock.
#pragma once

#include <chrono>

namespace smc {

using TimePoint = std::chrono::steady_clock::time_point;

// A deadline that never comes.
inline constexpr TimePoint kNever = TimePoint::max();

}  // namespace smc
