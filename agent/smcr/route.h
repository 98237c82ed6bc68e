// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include "smc/wire/ids.h"

namespace smc::smcr {

// What SMC v2.1 calls a direct link: the way from one GID to the other has no router, as the kernel's routing table
// sees it. False also when there is no way.
bool is_direct(const RoceGid& own, const RoceGid& peer);

}  // namespace smc::smcr
