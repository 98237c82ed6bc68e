// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Programs on a device by tcx, in the calling thread's network namespace. tcx came with kernel 6.6 and libbpf 1.3;
// Debian 12 has libbpf 1.1, so the calls are made by hand.
#pragma once

#include <optional>

#include "os/unique_fd.h"

namespace smc::bpf::tcx {

// Attaches a program to a device (by index) for as long as the link exists: at egress after all other programs, at
// ingress before all others. Invalid: errno says why.
[[nodiscard]] UniqueFd attach(int program_fd, unsigned device, bool egress);

// The position of a program among the tcx programs of a device.
struct Position {
    bool attached = false;
    bool last = true;
};
// Nothing: the query failed, or the kernel has no tcx.
[[nodiscard]] std::optional<Position> position(int program_fd, unsigned device, bool egress);

}  // namespace smc::bpf::tcx
