// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The pins of the bypass, of this agent and of earlier ones (B1).
#pragma once

#include <cstdint>
#include <string>

#include "os/result.h"
#include "os/unique_fd.h"

namespace smc::bypass {

// The directory of the pins, beside the gateway's.
[[nodiscard]] std::string directory_of(const std::string& pin_path);
[[nodiscard]] UniqueFd pinned(const std::string& directory, const std::string& name);
// Whether map smc_members has no socket.
[[nodiscard]] bool is_empty(int members_fd);
// A hash of the compiled programs.
[[nodiscard]] std::uint64_t build();
// Afterwards the directory holds pins of this build, or does not exist: pins of other builds are moved away and
// switched off.
Result<void> make_way(const std::string& directory);
// Removes pins of other builds that have no members any more.
void remove_moved_aside(const std::string& directory);
// Switches off the bypass that is pinned there and moves its pins away. They stay until its last socket is closed.
void move_aside(const std::string& directory);

}  // namespace smc::bypass
