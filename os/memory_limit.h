// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace smc {

// How many bytes of memory the process may use: the lowest limit of the cgroup that it was in when this object was made
// and of those above. cgroup v2 (memory.max, and memory.high, above which the process is throttled) or v1.
class MemoryLimit {
 public:
    // Finds the files, once, because a process that changes its cgroup namespace afterwards would find others.
    MemoryLimit();
    // Nothing: there is no limit, or none that can be read.
    [[nodiscard]] std::optional<std::uint64_t> read() const;

 private:
    std::vector<std::filesystem::path> files_;
};

}  // namespace smc
