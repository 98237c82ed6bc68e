// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The configuration's JSON Schema, made from its keys, and the check against it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "agent/config/config.h"

namespace smc {

// The content of deploy/smc-agent.schema.json.
std::string print_config_schema();
// The table of docs/configuration.md.
std::string print_config_reference();

// The most deeply nested violation of the schema, with the value found there and the values allowed.
std::optional<ConfigProblem> check_schema(const nlohmann::json& document);

}  // namespace smc
