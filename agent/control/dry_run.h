// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `smcctl dry-run`: the connections that the applications have now, and what would become of each if it were made
// again. Reads the kernel's tables and asks the programs; touches no connection. In pieces, because a namespace's table
// takes milliseconds to read: of the namespaces behind the inode `after` those for which there is time now, and "more".
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "agent/control/introspection.h"

namespace smc {

[[nodiscard]] nlohmann::json dry_run(const IntrospectionParts& parts, std::uint64_t after);

}  // namespace smc
