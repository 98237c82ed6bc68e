// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Lowers the configured limits to what the system allows, so that the agent reaches a limit of its own, instead of
// failing half-way or being killed.
#pragma once

#include <cstdint>
#include <optional>

#include "agent/config/config.h"
#include "os/memory_limit.h"

namespace smc {

// Raises the process's limit of descriptors if it may, lowers the number of connections to what that limit allows, and
// logs it.
void lower_to_the_descriptors(Config& config);

// Lowers the limits that take memory to what the process's control groups allow, and raises them again, up to what was
// configured. Logs each change.
class MemoryWatch {
 public:
    // `config` outlives this object.
    explicit MemoryWatch(Config& config) : config_(config) {}
    MemoryWatch(const MemoryWatch&) = delete;
    MemoryWatch& operator=(const MemoryWatch&) = delete;
    ~MemoryWatch() = default;

    // Returns true if the limits in the configuration have changed.
    bool look();

 private:
    struct Limits {
        unsigned connections = 0, ism_mib = 0, roce_mib = 0;
    };
    [[nodiscard]] static Limits lowered(Limits limits, bool roce, std::uint64_t bytes);

    Config& config_;
    MemoryLimit limit_;
    std::optional<Limits> configured_;    // nothing: before the first look()
    std::optional<std::uint64_t> bytes_;  // allowed at the last look()
};

}  // namespace smc
