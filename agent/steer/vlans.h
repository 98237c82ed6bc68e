// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The VLAN (802.1Q) in which packets of a network namespace's devices leave the node. A link group carries connections
// of one VLAN only (RFC 7609 sections 2.2 and 5.1). As in net/smc, the first VLAN device found counts: the device
// itself, or one below it. Unlike net/smc, the search also goes from a veth device to the bridge of which the other end
// is a port, if that bridge is in the agent's namespace. Packets that the node routes have no VLAN here, because their
// route depends on rules and on translated addresses.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "os/rtnetlink.h"

namespace smc {

class Vlans {
 public:
    // No device sends by a VLAN.
    Vlans() = default;
    // `there`: devices of the examined namespace; `own`: the agent's namespace, whose netnsid is `own_id` there.
    Vlans(const std::vector<NetDevice>& there, const std::vector<NetDevice>& own, std::optional<int> own_id);

    // False: of() returns 0 for all devices.
    [[nodiscard]] bool any() const { return !by_device_.empty(); }
    // The VLAN ID of what leaves by a device of the examined namespace; 0: it has no tag.
    [[nodiscard]] std::uint16_t of(unsigned device) const {
        const auto it = by_device_.find(device);
        return it == by_device_.end() ? std::uint16_t{0} : it->second;
    }

 private:
    std::map<unsigned, std::uint16_t> by_device_;  // without devices that have none
};

// Reads the devices of both namespaces. `own_id`: see Vlans.
[[nodiscard]] Result<Vlans> vlans_of(const std::vector<NetDevice>& there, const Rtnetlink& own,
                                     std::optional<int> own_id);

}  // namespace smc
