// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The agent that serves when this one starts.
#pragma once

#include <chrono>
#include <string>

#include "os/result.h"

namespace smc::upgrade {

// Asks it to leave. It has said yes when this returns, and gives up its control socket when nobody is between a SYN and
// a first byte any more. False: nobody is there. An Error: it cannot leave.
Result<bool> ask_to_leave(const std::string& control_socket, std::chrono::milliseconds timeout);

}  // namespace smc::upgrade
