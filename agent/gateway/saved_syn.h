// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An application's SYN, as it would have left its device.
#pragma once

#include <cstdint>
#include <vector>

#include "bpf/abi.h"

namespace smc {

// The packet of a question, link header included, with the checksum that the device would have completed. Empty: what
// the program saved is no SYN.
std::vector<std::uint8_t> saved_syn(const smc_question& question);

}  // namespace smc
