// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The state of each BPF program: loaded, refused, or without use here (agent/steer/loading.h), as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "agent/control/introspection.h"

namespace smc {

// [{"program", "hook", "purpose", "lost", "state": "loaded" | "refused" | "not needed", "error"}]
[[nodiscard]] nlohmann::json programs(const IntrospectionParts& parts);
// The programs that the kernel has refused.
[[nodiscard]] nlohmann::json left_out(const IntrospectionParts& parts);

}  // namespace smc
