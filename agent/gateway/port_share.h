// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Local ports that connections over SMC take from applications. A CLC socket and a leg speak to the same server as the
// application's socket does, from the same address, so each needs a port of its own among those that the namespace
// gives out (ip_local_port_range). The agent takes no more than a quarter of them for one server: where few are left,
// connect() would fail for an application that has enough of them by itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "agent/netns/namespace.h"
#include "os/endpoint.h"

namespace smc {

class PortShare {
 public:
    [[nodiscard]] bool has_room(const Namespace& space, const Endpoint& server) const {
        constexpr std::size_t kPortsOfOne = 2, kShare = 4;
        const auto it = taken_.find({space.inode(), server});
        return ((it == taken_.end() ? 0 : it->second) + 1) * kPortsOfOne * kShare <= space.local_ports();
    }
    // By a connection of the namespace with this inode.
    void take(std::uint64_t netns, const Endpoint& server) { taken_[{netns, server}]++; }
    void give_back(std::uint64_t netns, const Endpoint& server) {
        const auto it = taken_.find({netns, server});
        if (it != taken_.end() && --it->second == 0) {
            taken_.erase(it);
        }
    }

 private:
    std::map<std::pair<std::uint64_t, Endpoint>, std::size_t> taken_;  // connections
};

}  // namespace smc
