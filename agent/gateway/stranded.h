// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Applications' sockets whose leg is gone without a word (bpf/smc_legs.h): they are ended. Control thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "agent/netns/namespaces.h"
#include "bpf/abi.h"

namespace smc {

class Stranded {
 public:
    // Outlives it.
    explicit Stranded(const Namespaces& namespaces) : namespaces_(namespaces) {}

    // Some of them: the others are there the next time, too.
    void end(const std::vector<smc_stranded_socket>& sockets);

 private:
    const Namespaces& namespaces_;
    std::size_t next_ = 0;
    bool impossible_ = false;  // on this system
};

}  // namespace smc
