// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Local ports that connections over SMC take from applications. Each has a CLC socket and a leg beside the
// application's own socket, and these have a port each among those that the namespace gives out (ip_local_port_range);
// as they are bound, no connect() to anybody is given these. So the agent takes no more than a quarter of them in a
// namespace: where few are left, connect() would fail for an application that has enough of them by itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "agent/netns/namespace.h"

namespace smc {

class PortShare {
 public:
    [[nodiscard]] bool has_room(const Namespace& netns) const {
        constexpr std::size_t kPortsOfOne = 2, kShare = 4;
        const auto it = taken_.find(netns.inode());
        return ((it == taken_.end() ? 0 : it->second) + 1) * kPortsOfOne * kShare <= netns.local_ports();
    }
    // By a connection of the namespace with this inode.
    void take(std::uint64_t netns) { taken_[netns]++; }
    void give_back(std::uint64_t netns) {
        const auto it = taken_.find(netns);
        if (it != taken_.end() && --it->second == 0) {
            taken_.erase(it);
        }
    }

 private:
    std::unordered_map<std::uint64_t, std::size_t> taken_;  // connections, by inode
};

}  // namespace smc
