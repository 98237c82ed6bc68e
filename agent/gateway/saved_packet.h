// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A packet without data that a BPF program holds, as it would have left its device: the SYN of an application,
// or the last packet of a leg's handshake.
#pragma once

#include <cstdint>
#include <vector>

#include "bpf/abi.h"

namespace smc {

// Includes the link header, and the checksum that the device would have completed. Empty: the saved bytes are no such
// packet.
std::vector<std::uint8_t> saved_packet(const smc_request& request);

}  // namespace smc
