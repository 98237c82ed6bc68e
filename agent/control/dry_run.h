// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `smcctl dry-run`: the connections that the applications have now, and what would become of each if it were made
// again. Reads the kernel's tables and asks the BPF programs; touches no connection. Answers in pieces, because reading
// a namespace's table takes milliseconds: an answer has as many namespaces with an inode above `after` as there is time
// for, and "more" if some are left.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "agent/control/introspection.h"

namespace smc {

[[nodiscard]] nlohmann::json dry_run(const IntrospectionParts& parts, std::uint64_t after);

}  // namespace smc
