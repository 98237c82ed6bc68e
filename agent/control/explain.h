// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `smcctl explain`: what would happen to a new connection, and why.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "agent/control/introspection.h"

namespace smc {

// Request: {"address": "10.0.0.1:80", "pid": 4711}; without "pid", for any cgroup and every served namespace.
nlohmann::json explain(const IntrospectionParts& parts, const nlohmann::json& request);

}  // namespace smc
