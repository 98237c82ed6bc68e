// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Programs on a device as filters of its clsact qdisc, in the calling thread's network namespace, for kernels without
// tcx. Each instance of the agent has a handle of its own, so that a restarted agent replaces the filters that a killed
// one left.
#pragma once

#include "os/result.h"

namespace smc::bpf::clsact {

inline constexpr unsigned kPriority = 0x534d;

// Makes the qdisc if need be, and replaces the instance's own filters on both sides. `device`: its index.
[[nodiscard]] Result<void> attach(unsigned device, unsigned instance, int out_fd, int in_fd);
// False: the device has no clsact qdisc.
bool detach(unsigned device, unsigned instance);

}  // namespace smc::bpf::clsact
