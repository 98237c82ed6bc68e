// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The counters of the kernel's own SMC (net/smc) since it was loaded.
#pragma once

#include <cstdint>
#include <optional>

namespace smc {

struct KernelSmc {
    // Connections that were established with SMC, by version (1 and 2) and role.
    struct Mode {
        std::uint64_t client[2] = {}, server[2] = {};
        std::uint64_t sent = 0, received = 0;  // bytes
    };
    Mode smcd, smcr;
    std::uint64_t client_errors = 0, server_errors = 0;  // failed handshakes
};

// The counters of the calling thread's network namespace. Nothing: the kernel has no SMC, or does not report them.
std::optional<KernelSmc> kernel_smc();

}  // namespace smc
