// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which of this node's RoCE ports and GIDs CLC offers for a TCP connection. Pure: given the ports, it asks no device.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "datapath/roce/ports.h"
#include "smc/clc/node.h"

namespace smc::smcr {

// This end of a TCP connection: its address, and the VLAN ID of its packets (0: they have no tag; nothing: that is not
// known, so no port will do).
struct Local {
    RoceGid address;
    std::optional<std::uint16_t> vlan = 0;
};

// The port and GID for such a connection, out of `ports`, those of its physical network. Linux uses RoCEv1 for SMC-Rv1,
// so its peer must as well; devices without RoCEv1 (soft-RoCE) use RoCEv2 with each other. nullopt: there is none.
std::optional<roce::PortChoice> choose_port(const std::vector<roce::Port>& ports, const Local& local,
                                            std::uint8_t smcr_version);

// The GIDs and the MAC address to offer, for those of the versions that have a port. The first GID of version 2 is that
// of the connection's own link; each other port follows with one GID, in the order of `ports`, because a server takes
// the others for a second link, which is of use on another port only (v2.1, Client RoCEv2 GID List, notes 2 and 6b).
// Addresses and networks of version 1 are not set. `peer_agent`: the peer is an agent, with which version 1 may use
// RoCEv2, too. nullopt: neither version has a port.
std::optional<clc::RoceOffer> ports_to_offer(const std::vector<roce::Port>& ports, const Local& local, bool v1, bool v2,
                                             bool peer_agent);

}  // namespace smc::smcr
