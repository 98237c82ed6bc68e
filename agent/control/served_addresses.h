// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The addresses of the network namespaces that this agent serves. A connection between two of them is TCP.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "agent/netns/namespaces.h"
#include "os/endpoint.h"

namespace smc {

class ServedAddresses {
 public:
    // Asks each namespace for its addresses.
    explicit ServedAddresses(const Namespaces& namespaces);

    // Whether the address, port aside, is one of the namespace with this inode.
    [[nodiscard]] bool is_of(std::uint64_t inode, const Endpoint& address) const;
    // The inode of another namespace that has the address. Addresses that mean another host in each namespace
    // (loopback, link-local) are not found.
    [[nodiscard]] std::optional<std::uint64_t> elsewhere(std::uint64_t inode, const Endpoint& address) const;

 private:
    std::multimap<std::array<std::uint8_t, 16>, std::uint64_t> inodes_;  // by address
};

// Says that a connection to an address of that other namespace is TCP.
inline std::string both_ends_text(std::uint64_t inode) {
    return "the server is in netns " + std::to_string(inode) +
           ", which has that address: this agent serves both ends, and leaves them to TCP";
}

}  // namespace smc
