// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Physical networks, named by PNET IDs as in smc_pnet: which RoCE ports are on the network of a TCP connection. A port
// of another network is no path for the connection, and no second path either (RFC 7609 section 2.2.1).
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "agent/config/config.h"

namespace smc::smcr {

class Pnets {
 public:
    explicit Pnets(const std::vector<Pnet>& wanted);

    // PNET IDs; empty: no network. For an address (IPv4 in its mapped form): the first network that contains it.
    [[nodiscard]] std::string of_address(const std::array<std::uint8_t, 16>& address) const;
    [[nodiscard]] std::string of_port(const std::string& device, unsigned number) const;
    // Names of devices, without port numbers.
    [[nodiscard]] const std::set<std::string>& devices() const { return devices_; }

 private:
    struct Entry {
        std::string id;
        std::vector<std::string> devices;  // "mlx5_0", or a port of it: "mlx5_0/1"
        std::vector<Cidr> networks;
    };
    std::vector<Entry> entries_;
    std::set<std::string> devices_;
};

}  // namespace smc::smcr
