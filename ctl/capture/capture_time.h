// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>

namespace smc::capture {

// Microseconds since the epoch; 0 for a time before it or after the year 9999: pcapng can express the year 500,000.
constexpr std::int64_t capture_time(std::uint64_t seconds, std::int64_t offset, std::int64_t microseconds) {
    constexpr std::int64_t kLatest = 253'402'300'799;  // the end of 9999
    if (seconds > static_cast<std::uint64_t>(kLatest) || offset < -kLatest || offset > kLatest) {
        return 0;
    }
    const std::int64_t all = static_cast<std::int64_t>(seconds) + offset;
    return all < 0 || all > kLatest ? 0 : all * 1'000'000 + microseconds;
}

}  // namespace smc::capture
