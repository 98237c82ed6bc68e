// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The agent that already serves when this one starts.
#pragma once

#include <chrono>
#include <string>

#include "os/result.h"

namespace smc::upgrade {

// Asks the serving agent to leave. True: it has agreed, and will give up its control socket once none of its
// connections is being set up. False: no agent serves. An Error: it cannot leave. `pin_path`: the caller's
// bpf.pin_path; an agent with another one does not leave, because nobody would look after what it has pinned.
Result<bool> ask_to_leave(const std::string& control_socket, const std::string& pin_path,
                          std::chrono::milliseconds timeout);

}  // namespace smc::upgrade
