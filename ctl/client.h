// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// smcctl's end of the control socket.
#pragma once

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "os/result.h"

namespace smc::ctl {

// How long an agent may take to accept a connection, and then to answer.
constexpr std::chrono::seconds kLongestAnswer{10};

// Sends one request and returns its answer. An Error means that no agent answers there.
Result<nlohmann::json> ask(const std::string& socket, const nlohmann::json& request);
// The same over a socket that connect_unix() has connected.
Result<nlohmann::json> ask_over(int fd, const nlohmann::json& request, std::chrono::seconds longest = kLongestAnswer);

}  // namespace smc::ctl
