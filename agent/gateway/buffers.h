// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Sizes of one connection's buffers, derived from what its application chose (SO_SNDBUF, SO_RCVBUF). If the receiver
// does not read, send() accepts as much as all of these buffers hold together, so none is much larger than the
// application's own.
#pragma once

#include <cstdint>

#include "agent/config/config.h"
#include "bpf/abi.h"
#include "smc/group/actions.h"

namespace smc {

// Size of the own DMB in bytes. `usual`: the size if the application did not choose a receive buffer. SMC allows 16 KiB
// times a power of two.
std::uint32_t dmb_bytes(std::uint32_t usual, const smc_buffers& application);

// Sizes of the own RMBE and of the memory to send from. If the application did not choose: roce.rmbe_kib. The RMBE is
// smaller or larger than that, as SO_RCVBUF is. The memory to send from is never smaller than usual, because the
// application may choose a larger SO_SNDBUF later; until then its present SO_SNDBUF limits the bytes under way. Either
// takes 16 MiB and a 256th of roce.memory_mib at most, unless the usual size is more.
group::ElementBytes element_bytes(const Config::Roce& config, const smc_buffers& application);

// SO_RCVBUF and SO_SNDBUF of a leg, as setsockopt() takes them; the kernel doubles them.
struct LegBuffers {
    std::uint32_t receive = 0, send = 0;
};

// `peer_ring`: size of the peer's ring in bytes; 0: not known yet.
LegBuffers leg_buffers(const smc_buffers& application, std::uint32_t peer_ring);

}  // namespace smc
