// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the system allows of what is configured: better to meet a limit than to fail half-way, or to be killed.
#pragma once

#include <cstdint>
#include <optional>

#include "agent/config/config.h"
#include "os/memory_limit.h"

namespace smc {

// Lowers the number of connections to what the process may have of descriptors, and says so. Also raises that limit,
// where it may.
void lower_to_the_descriptors(Config& config);

// Lowers the limits that take memory to what the control groups of the process allow, and raises them again, up to what
// was configured. Says so.
class MemoryWatch {
 public:
    // `config` outlives it.
    explicit MemoryWatch(Config& config) : config_(config) {}
    MemoryWatch(const MemoryWatch&) = delete;
    MemoryWatch& operator=(const MemoryWatch&) = delete;
    ~MemoryWatch() = default;

    // True: the limits in the configuration have changed.
    bool look();

 private:
    struct Limits {
        unsigned connections = 0, ism_mib = 0, roce_mib = 0;
    };
    [[nodiscard]] static Limits lowered(Limits limits, bool roce, std::uint64_t bytes);

    Config& config_;
    MemoryLimit limit_;
    std::optional<Limits> configured_;    // nothing: it has not looked yet
    std::optional<std::uint64_t> bytes_;  // that were allowed then
};

}  // namespace smc
