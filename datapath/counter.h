// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Counters that one thread writes and any thread may read, without a locked instruction.
#pragma once

#include <atomic>
#include <cstdint>

namespace smc {

inline void add(std::atomic<std::uint64_t>& counter, std::uint64_t n = 1) {
    counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

}  // namespace smc
