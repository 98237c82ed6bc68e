// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The agent that already serves when this one starts.
#pragma once

#include <chrono>
#include <string>

#include "os/result.h"

namespace smc::upgrade {

// Asks the serving agent to leave. True: it has agreed, and will give up its control socket once none of its
// connections is being set up. False: no agent serves. An Error: it cannot leave.
Result<bool> ask_to_leave(const std::string& control_socket, std::chrono::milliseconds timeout);

}  // namespace smc::upgrade
