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
// How many of the agent's own connections are on each path; tuned and bypassed ones, which are the kernel's, are not
// counted.
nlohmann::json live_by_path(const Connections& connections);

}  // namespace smc
