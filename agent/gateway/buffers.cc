// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/gateway/buffers.h"

#include <algorithm>

namespace smc {

std::uint32_t dmb_bytes(std::uint32_t usual, const smc_buffers& application) {
    constexpr std::uint32_t kSmallest = 16 * 1024;
    std::uint32_t bytes = usual;
    while (application.receive != 0 && bytes / 2 >= std::max(application.receive, kSmallest)) {
        bytes /= 2;
    }
    return bytes;
}

LegBuffers leg_buffers(const smc_buffers& application, std::uint32_t peer_ring) {
    constexpr std::uint32_t kUsual = 256 * 1024;
    const std::uint32_t to_send = application.send != 0 ? application.send : kUsual;
    // If the peer's ring is small, the leg's buffer holds no more than twice its size.
    const std::uint32_t most = peer_ring != 0 ? 2 * std::min(peer_ring, kUsual) : to_send;
    const std::uint32_t to_deliver = application.receive != 0 ? application.receive : kUsual;
    // If the application does not read, all but this much of the data that TCP cannot send to it stays in the ring, so
    // that the peer sees a full ring.
    constexpr int kUnsent = 16 * 1024;
    return {static_cast<int>(std::min(to_send, most) / 2), static_cast<int>(to_deliver / 2), kUnsent};
}

}  // namespace smc
