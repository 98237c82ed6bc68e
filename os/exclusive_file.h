// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A file that only one process can open.
#pragma once

#include <string>

#include "os/result.h"
#include "os/unique_fd.h"

namespace smc {

// For reading and writing. If another process with this one's name has it open, that one's descriptor, shared. EBUSY:
// something else has it.
Result<UniqueFd> open_exclusive(const std::string& path);

}  // namespace smc
