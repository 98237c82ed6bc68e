// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Ends applications' sockets whose leg is gone, and legs whose application's socket is gone, if neither FIN nor reset
// got through (bpf/smc_half_open.h). Control thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "agent/netns/namespaces.h"
#include "bpf/abi.h"

namespace smc {

class HalfOpen {
 public:
    // `namespaces` outlives this object.
    explicit HalfOpen(const Namespaces& namespaces) : namespaces_(namespaces) {}

    void end(const std::vector<std::pair<std::uint64_t, smc_half_open>>& sockets);

 private:
    const Namespaces& namespaces_;
    // Shared with jobs that may end after this object.
    struct State {
        bool impossible = false;            // this kernel cannot end sockets of other processes
        std::set<std::uint64_t> under_way;  // cookies of sockets that are being ended
    };
    std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace smc
