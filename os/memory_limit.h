// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <optional>

namespace smc {

// Bytes that the process may use, by the control groups that it is in: the lowest limit of its own and those above,
// cgroup v2 (memory.max, and memory.high, from which on it is slowed down) or v1. Nothing: there is no limit, or none
// that can be read.
std::optional<std::uint64_t> memory_limit();

}  // namespace smc
