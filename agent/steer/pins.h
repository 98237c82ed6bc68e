// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Directories on a bpf file system that hold what an agent has pinned. Each is the agent's alone, and all names in it
// begin with smc_.
#pragma once

#include <string>

#include "os/lock_file.h"
#include "os/result.h"

namespace smc::bpf {

// Mounts a bpf file system where there should be one, and makes what is above this directory in it.
Result<void> make_pin_directory(const std::string& path);
// While it is held, no other agent pins anything there. EBUSY: one does.
Result<LockFile> lock_pins(const std::string& path);
// An Error names what somebody else has pinned there: that is neither moved nor removed.
Result<void> has_only_ours(const std::string& path);
// Removes what an agent pinned, and nothing else that may be in the directory.
void remove_pins(const std::string& path);
// .rodata and the like are nobody's business.
[[nodiscard]] bool is_to_be_pinned(const std::string& map_name);

}  // namespace smc::bpf
