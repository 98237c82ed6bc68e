// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Limits the local ports that SMC connections take from applications. At the client, each connection has a CLC socket
// and a leg besides the application's own socket, each on a port of the namespace's ip_local_port_range. These two
// ports are bound, so connect() gives them to no other socket, whatever its peer. The agent therefore takes at most a
// quarter of a namespace's ports: with few left, connect() would fail for an application that alone would have enough
// of them. (At the server, the CLC socket has the server's port, and the leg the client's if that is free; they do
// not count.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "agent/netns/namespace.h"

namespace smc {

class PortShare {
 public:
    [[nodiscard]] bool has_ports_for(const Namespace& netns) const {
        constexpr std::size_t kPortsOfOne = 2, kShare = 4;
        const auto it = taken_.find(netns.inode());
        return ((it == taken_.end() ? 0 : it->second) + 1) * kPortsOfOne * kShare <= netns.local_ports().range.count();
    }
    // For a connection in the namespace with this inode.
    void take(std::uint64_t netns) { taken_[netns]++; }
    void give_back(std::uint64_t netns) {
        const auto it = taken_.find(netns);
        if (it != taken_.end() && --it->second == 0) {
            taken_.erase(it);
        }
    }

 private:
    std::unordered_map<std::uint64_t, std::size_t> taken_;  // inode -> connections
};

}  // namespace smc
