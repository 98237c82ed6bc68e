// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include "agent/config/config.h"

namespace smc {

// Lowers the limits of the configuration to what the system allows, and says so: better to meet a limit than to fail
// half-way, or to be killed. Also raises the process's own limit of descriptors, where it may.
void lower_to_what_the_system_allows(Config& config);

}  // namespace smc
