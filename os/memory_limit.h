// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace smc {

// Bytes that the process may use, by the control groups that it was in when this was made: the lowest limit of its own
// and those above, cgroup v2 (memory.max, and memory.high, from which on it is slowed down) or v1.
class MemoryLimit {
 public:
    // Finds the files, once: what a process that changes its cgroup namespace would find is not asked again.
    MemoryLimit();
    // Nothing: there is no limit, or none that can be read.
    [[nodiscard]] std::optional<std::uint64_t> read() const;

 private:
    std::vector<std::filesystem::path> files_;
};

}  // namespace smc
