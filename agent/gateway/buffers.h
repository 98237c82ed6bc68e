// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How large the buffers of one connection are, from what its application chose (SO_SNDBUF, SO_RCVBUF). What send()
// accepts of an application whose peer does not read is what all of them hold together, so none is much larger than
// the application's own.
#pragma once

#include <cstdint>

#include "bpf/abi.h"

namespace smc {

// Bytes of the own DMB. `usual`: where the application chose no receive buffer. SMC's sizes are 16 KiB times a power of
// two.
std::uint32_t dmb_bytes(std::uint32_t usual, const smc_buffers& application);

// Of a leg, as setsockopt() takes them, which doubles the first two.
struct LegBuffers {
    int receive = 0, send = 0;
    int unsent = 0;  // TCP_NOTSENT_LOWAT
};

// `peer_ring`: bytes; 0: not known yet.
LegBuffers leg_buffers(const smc_buffers& application, std::uint32_t peer_ring);

}  // namespace smc
