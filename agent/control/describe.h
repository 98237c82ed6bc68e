// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Reasons and connections as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "agent/connections/connections.h"
#include "bpf/abi.h"

namespace smc {

nlohmann::json describe(Reason reason);
nlohmann::json describe(const Connection& connection);
nlohmann::json describe(std::uint64_t cookie, const smc_tuned_socket& socket);
// How many there are on each path: the agent's own, not those that were tuned or are bypassed, which are the kernel's.
nlohmann::json live_by_path(const Connections& connections);

}  // namespace smc
