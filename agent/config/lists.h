// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The keys whose values are lists of objects.
#pragma once

#include "agent/config/keys.h"

namespace smc {

ConfigKey rules_key();
ConfigKey other_fabrics_key();
ConfigKey pnets_key();

// A rule of the policy.
Rule rule_from(const nlohmann::json& from);

}  // namespace smc
