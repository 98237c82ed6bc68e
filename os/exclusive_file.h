// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A file that only one process can open.
#pragma once

#include <string>

#include "os/result.h"
#include "os/unique_fd.h"

namespace smc {

// Opens the file for reading and writing. If another process with the name and the effective user of this one has it
// open, returns a duplicate of that process's descriptor. EBUSY: a process of another name or user has it open.
Result<UniqueFd> open_exclusive(const std::string& path);

// A duplicate of the descriptor that another process has for this file: a process with the name and the effective user
// of this one. Empty: there is none.
UniqueFd share_open_file(const std::string& path);

}  // namespace smc
