// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A packet without data that a program has kept back, as it would have left its device: the SYN of an application, or
// the last packet of the handshake of a leg.
#pragma once

#include <cstdint>
#include <vector>

#include "bpf/abi.h"

namespace smc {

// Link header included, with the checksum that the device would have completed. Empty: what the program saved is none.
std::vector<std::uint8_t> saved_packet(const smc_request& request);

}  // namespace smc
