// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Sockets that speak for an application's: from its address, by its device, as its user.
#pragma once

#include <chrono>
#include <optional>

#include "agent/gateway/buffers.h"
#include "agent/netns/namespace.h"
#include "bpf/abi.h"
#include "os/endpoint.h"

namespace smc {

// How a socket of the agent's resembles an application's. What is 0 is left to the kernel.
struct SocketOptions {
    Endpoint from;  // the port is only wished for; 0: any
    Endpoint to;
    Namespace::Owner owner;
    std::uint32_t mark = 0;
    unsigned device = 0;
    std::uint8_t ttl = 0, tos = 0;
    std::optional<LegBuffers> buffers{};  // of a leg
};

// From how many ports a leg tries to connect. Newer kernels make the time stamps of a connection from its ports, too.
// Where an application's ports had another connection lately, its kernel drops a SYN whose time stamp is older than the
// last of that one (PAWS). A leg's is refused at once then (SMC_LEG_PAWS), from about half of all ports; from the last
// one that is tried it is not, because with an older kernel all ports are alike.
inline constexpr int kPortsTried = 16;

// A socket that is connecting. An Error has connect()'s errno.
Result<UniqueFd> connect_with(const Namespace& netns, const smc_sock& mark, const SocketOptions& like);

[[nodiscard]] bool is_connecting(int fd);
// What became of a connect(): 0, or its errno; EINPROGRESS if nothing yet. It is told once: the next answer is 0.
[[nodiscard]] int take_connect_error(int fd);

}  // namespace smc
