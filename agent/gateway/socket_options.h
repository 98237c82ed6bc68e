// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Sockets that stand for an application's socket: with its address, its device and its user.
#pragma once

#include "agent/netns/namespace.h"
#include "bpf/abi.h"
#include "os/endpoint.h"

namespace smc {

// Addresses and options for a socket of the agent that stands for an application's socket. A value of 0 leaves the
// choice to the kernel, except in `owner`, where it is root.
struct SocketOptions {
    Endpoint from;  // the port is only a wish; 0: any
    Endpoint to;
    Namespace::Owner owner;
    std::uint32_t mark = 0;
    unsigned device = 0;
    std::uint8_t ttl = 0, tos = 0;
    bool foreign = true;  // `from` may be an address that the host does not have
};

// How many ports a leg may try to connect from. Where an application's ports lately had another connection, its kernel
// drops a SYN whose time stamp is older than the last one of that connection (PAWS). Newer kernels derive a
// connection's time stamps from its ports too, so from about half of all ports a leg's SYN would be dropped; the BPF
// programs refuse it at once instead (SMC_LEG_PAWS), and the next port is tried. The last port's SYN is not refused,
// because with an older kernel all ports are alike.
inline constexpr int kPortsTried = 16;

// Returns a socket that is connecting. An Error has the errno of the call that failed. `mark`: what the BPF programs
// are to know about the socket; they also set some of its options (bpf/smc_option.h). `ready`: a socket of
// Namespace::tcp_sockets() for these addresses and this owner, if there is one already.
Result<UniqueFd> connect_with(const bpf::Programs& programs, const Namespace& netns, const smc_sock& mark,
                              const SocketOptions& options, UniqueFd ready = {});

// Whether connect() has no result yet.
[[nodiscard]] bool is_connecting(int fd);
// Whether a TCP socket that was connected has no connection any more, because the other end has reset it.
[[nodiscard]] bool was_reset(int fd);
// Ends a TCP connection at this end only, or by a reset; the socket stays.
void disconnect(int fd);
// The result of a connect(): 0 or its errno; EINPROGRESS if there is none yet. An errno is reported once: the next call
// returns 0.
[[nodiscard]] int take_connect_error(int fd);

}  // namespace smc
