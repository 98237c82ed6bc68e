// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The VLAN (802.1Q) by which packets of a network namespace's devices leave the node. A link group carries connections
// of one VLAN only (RFC 7609 sections 2.2 and 5.1). As net/smc does it, the first VLAN device found counts: the device
// itself, or one below it. Of a veth pair whose other end is in the agent's namespace, that end is followed as well,
// which net/smc does not do: to a bridge, or to the route that the agent's namespace has.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "os/endpoint.h"
#include "os/rtnetlink.h"

namespace smc {

class Vlans {
 public:
    // No device sends by a VLAN.
    Vlans() = default;
    // `there`: devices of the examined namespace; `own`: those of the agent's namespace, which has `own_id` there.
    Vlans(const std::vector<NetDevice>& there, const std::vector<NetDevice>& own, std::optional<int> own_id);

    // False: vlan_of() returns 0 for all devices.
    [[nodiscard]] bool any() const { return !there_.empty(); }
    // The VLAN ID of what leaves by a device of the examined namespace towards `to`; 0: it has no tag, or it is not
    // known. `own`: belongs to the agent's namespace.
    [[nodiscard]] std::uint16_t of(unsigned device, const Endpoint& to, const Rtnetlink& own) const;

 private:
    // Devices with a VLAN, and those whose packets the agent's namespace routes; without those that are neither.
    struct Way {
        std::uint16_t vlan = 0;
        bool routed = false;
    };
    std::map<unsigned, Way> there_;
    std::map<unsigned, std::uint16_t> own_;
};

// Reads the devices of both namespaces. `own_id`: see Vlans.
[[nodiscard]] Result<Vlans> vlans_of(const std::vector<NetDevice>& there, const Rtnetlink& own,
                                     std::optional<int> own_id);

}  // namespace smc
