// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What is pinned of the bypass, by this agent and by others that were here before (B1).
#pragma once

#include <cstdint>
#include <string>

#include "os/result.h"
#include "os/unique_fd.h"

namespace smc::bypass {

// Beside the gateway's.
[[nodiscard]] std::string directory_of(const std::string& pin_path);
[[nodiscard]] UniqueFd pinned(const std::string& directory, const std::string& name);
// No socket is in map smc_members.
[[nodiscard]] bool is_empty(int members_fd);
// Which programs these are, as they were compiled.
[[nodiscard]] std::uint64_t build();
// The directory holds those of this build, or there is none: what others left is out of the way, and switched off.
Result<void> make_way(const std::string& directory);
// Those of other builds that nobody is in any more.
void remove_retired(const std::string& directory);
// Switches off what is pinned there. It stays, elsewhere, until the last of its sockets is closed.
void retire(const std::string& directory);

}  // namespace smc::bypass
