// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The agent's JSON answers as text for a person.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <ostream>

namespace smc::ctl {

void print_status(std::ostream& out, const nlohmann::json& status);
void print_connections(std::ostream& out, const nlohmann::json& connections);
void print_explanation(std::ostream& out, const nlohmann::json& explanation);

}  // namespace smc::ctl
