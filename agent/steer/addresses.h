// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Addresses as the BPF programs have them (abi.h) and as the agent has them.
#pragma once

#include <algorithm>
#include <iterator>

#include "bpf/abi.h"
#include "os/endpoint.h"

namespace smc {

inline smc_addr to_abi(const Endpoint& endpoint) {
    smc_addr address{};
    std::copy(endpoint.ip.begin(), endpoint.ip.end(), address.ip);
    address.port = endpoint.port;
    return address;
}

inline Endpoint from_abi(const smc_addr& address) {
    Endpoint endpoint;
    std::copy(std::begin(address.ip), std::end(address.ip), endpoint.ip.begin());
    endpoint.port = address.port;
    return endpoint;
}

// The connection between a local and a remote address, in the namespace with this slot.
inline smc_tuple tuple_of(const Endpoint& local, const Endpoint& remote, std::uint32_t slot) {
    smc_tuple tuple{};
    std::copy(local.ip.begin(), local.ip.end(), tuple.local_ip);
    std::copy(remote.ip.begin(), remote.ip.end(), tuple.remote_ip);
    tuple.local_port = local.port;
    tuple.remote_port = remote.port;
    tuple.slot = slot;
    return tuple;
}

inline Endpoint local_of(const smc_tuple& tuple) {
    Endpoint endpoint;
    std::copy(std::begin(tuple.local_ip), std::end(tuple.local_ip), endpoint.ip.begin());
    endpoint.port = tuple.local_port;
    return endpoint;
}

inline Endpoint remote_of(const smc_tuple& tuple) {
    Endpoint endpoint;
    std::copy(std::begin(tuple.remote_ip), std::end(tuple.remote_ip), endpoint.ip.begin());
    endpoint.port = tuple.remote_port;
    return endpoint;
}

}  // namespace smc
