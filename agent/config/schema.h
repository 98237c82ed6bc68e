// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Checks a document against the published JSON Schema, which is compiled into the program.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "agent/config/config.h"

namespace smc {

// The deepest thing that is wrong, with what stands there and what the schema allows.
std::optional<ConfigProblem> check_schema(const nlohmann::json& document);

}  // namespace smc
