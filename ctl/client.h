// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// smcctl's end of the control socket.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "os/result.h"

namespace smc::ctl {

// Sends one request and returns its answer. An Error means that no agent answers there.
Result<nlohmann::json> ask(const std::string& socket, const nlohmann::json& request);

}  // namespace smc::ctl
