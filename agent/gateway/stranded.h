// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Applications' sockets whose leg is gone without a word (bpf/smc_stranded.h): they are ended. Control thread only.
#pragma once

#include <cstdint>

#include "agent/netns/namespaces.h"
#include "agent/steer/programs.h"

namespace smc {

class Stranded {
 public:
    // Both outlive it.
    Stranded(const bpf::Programs& programs, const Namespaces& namespaces)
        : programs_(programs), namespaces_(namespaces) {}

    // To be called now and then.
    void end_all();

 private:
    const bpf::Programs& programs_;
    const Namespaces& namespaces_;
    std::uint64_t failed_ = 0;  // cookie of the last socket that could not be ended; it may just have gone
    bool impossible_ = false;   // on this system
};

}  // namespace smc
