// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Checks that JSON Schema cannot express, for a configuration that fits the schema.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "agent/config/config.h"

namespace smc {

nlohmann::json value_at(const nlohmann::json& document, const char* section, const char* name,
                        nlohmann::json otherwise);
// nullopt: the configuration is valid.
std::optional<ConfigProblem> check_meaning(const nlohmann::json& document);

}  // namespace smc
