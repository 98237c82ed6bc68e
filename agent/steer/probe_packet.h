// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The agent's own packet that tries whether a hairpin works.
#pragma once

#include <cstdint>
#include <vector>

namespace smc::bpf {

// As it leaves a device whose packets have `mac_len` bytes before their IP header: what smc_is_probe() recognizes
// (bpf/smc_device.h) by `mark`.
std::vector<std::uint8_t> probe_packet(std::uint32_t mac_len, bool v6, std::uint32_t mark);

}  // namespace smc::bpf
