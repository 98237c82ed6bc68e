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

}  // namespace smc
