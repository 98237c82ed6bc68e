// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/gateway/buffers.h"

#include <algorithm>

namespace smc {

namespace {

// The smallest size for `chosen` bytes, up to `most`; `usual` if none was chosen.
std::uint32_t ring_bytes(std::uint32_t chosen, std::uint32_t usual, std::uint64_t most) {
    if (chosen == 0) {
        return usual;
    }
    std::uint32_t bytes = group::kSmallestElement;
    while (bytes < chosen && std::uint64_t{bytes} * 2 <= most) {
        bytes *= 2;
    }
    return bytes;
}

}  // namespace

std::uint32_t dmb_bytes(std::uint32_t usual, const smc_buffers& application) {
    return ring_bytes(application.receive, usual, usual);
}

group::ElementBytes element_bytes(const Config::Roce& config, const smc_buffers& application) {
    constexpr std::uint64_t kMost = std::uint64_t{16} << 20, kParts = 256;
    const std::uint32_t usual = config.rmbe_kib * 1024;
    const std::uint64_t share = (std::uint64_t{config.memory_mib} << 20) / kParts;
    const std::uint64_t most = std::max<std::uint64_t>(std::min(share, kMost), usual);
    return {ring_bytes(application.receive, usual, most), std::max(ring_bytes(application.send, usual, most), usual)};
}

LegBuffers leg_buffers(const smc_buffers& application, std::uint32_t peer_ring) {
    constexpr std::uint32_t kUsual = 256 * 1024;
    const std::uint32_t to_send = application.send != 0 ? application.send : kUsual;
    // Once the peer's ring is known, the leg's receive buffer holds at most twice its size, and at most 512 KiB.
    const std::uint32_t most = peer_ring != 0 ? 2 * std::min(peer_ring, kUsual) : to_send;
    const std::uint32_t to_deliver = application.receive != 0 ? application.receive : kUsual;
    return {std::min(to_send, most) / 2, to_deliver / 2};
}

}  // namespace smc
