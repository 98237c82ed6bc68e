// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Directories on a bpf file system that hold what an agent has pinned. Each is the agent's alone, and all names in it
// begin with smc_.
#pragma once

#include <string>

#include "os/lock_file.h"
#include "os/result.h"

namespace smc::bpf {

// Creates the parent directory. If `path` is below /sys/fs/bpf, mounts a bpf file system there if there is none.
Result<void> make_pin_directory(const std::string& path);
// While the lock is held, no other agent pins anything there. EBUSY: another agent holds it.
Result<LockFile> lock_pins(const std::string& path);
// An Error names a pin there that is not an agent's. Such a pin is neither moved nor removed.
Result<void> has_only_ours(const std::string& path);
// Removes what an agent pinned, and nothing else that may be in the directory.
void remove_pins(const std::string& path);
// Whether a map is pinned: .rodata and the like are not.
[[nodiscard]] bool is_to_be_pinned(const std::string& map_name);

}  // namespace smc::bpf
