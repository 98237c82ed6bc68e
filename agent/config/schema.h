// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The configuration's JSON Schema, made from its keys, and the check against it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "agent/config/config.h"

namespace smc {

// As deploy/smc-agent.schema.json has it.
std::string print_config_schema();
// The table of docs/configuration.md.
std::string print_config_reference();

// The deepest thing that is wrong, with what stands there and what the schema allows.
std::optional<ConfigProblem> check_schema(const nlohmann::json& document);

}  // namespace smc
