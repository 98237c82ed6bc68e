// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Applications' sockets whose leg is gone without a word (bpf/smc_stranded.h): they are ended. Control thread only.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "agent/netns/namespaces.h"
#include "bpf/abi.h"

namespace smc {

class Stranded {
 public:
    // Outlives it.
    explicit Stranded(const Namespaces& namespaces) : namespaces_(namespaces) {}

    void end(const std::vector<std::pair<std::uint64_t, smc_stranded_socket>>& sockets);

 private:
    const Namespaces& namespaces_;
    bool impossible_ = false;  // on this system
};

}  // namespace smc
