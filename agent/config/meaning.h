// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the schema cannot say of a configuration that fits it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "agent/config/config.h"

namespace smc {

nlohmann::json value_at(const nlohmann::json& document, const char* section, const char* name,
                        nlohmann::json otherwise);
// Nothing: it is good.
std::optional<ConfigProblem> check_meaning(const nlohmann::json& document);

}  // namespace smc
