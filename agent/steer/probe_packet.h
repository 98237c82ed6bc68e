// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The packet with which the agent probes a hairpin.
#pragma once

#include <cstdint>
#include <vector>

namespace smc::bpf {

// The packet as it leaves a device whose packets have `mac_len` bytes before their IP header. smc_is_probe()
// (bpf/smc_device.h) recognizes it by `mark`.
std::vector<std::uint8_t> probe_packet(std::uint32_t mac_len, bool v6, std::uint32_t mark);

}  // namespace smc::bpf
