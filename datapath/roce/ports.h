// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// RoCE devices of this node: their ports, the addresses they can be reached at, the Ethernet device below.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "datapath/roce/verbs.h"
#include "os/result.h"
#include "smc/wire/clc/accept.h"
#include "smc/wire/ids.h"

namespace smc::roce {

// The packet format: RoCEv1 stays within an Ethernet segment, RoCEv2 is UDP.
enum class RoceVersion : std::uint8_t { kV1, kV2 };

struct PortGid {
    RoceGid gid;  // IPv4 in its mapped form; a RoCEv1 and a RoCEv2 GID may be the same
    RoceVersion version = RoceVersion::kV2;
    std::uint8_t index = 0;  // in the port's table
    std::string net_device;  // the network device with this address: "eth0", or a VLAN of it; empty: not known
    Mac mac;                 // of net_device
    std::uint16_t vlan = 0;  // the VLAN ID (802.1Q) of packets from this GID; 0: they have no tag
    bool operator==(const PortGid&) const = default;
};

struct Port {
    std::string device;  // "mlx5_0"
    std::uint8_t number = 1;
    bool active = false;
    clc::Mtu mtu = clc::Mtu::k1024;  // the active MTU
    std::vector<PortGid> gids;       // RoCEv2
    std::vector<PortGid> gids_v1;    // RoCEv1, which not all devices have

    // The first of RoCEv2, or else of RoCEv1; nullptr: it has no GID.
    [[nodiscard]] const PortGid* first_gid() const {
        return !gids.empty() ? gids.data() : !gids_v1.empty() ? gids_v1.data() : nullptr;
    }
    bool operator==(const Port&) const = default;
};

// Names of the RDMA devices that exist now; none in a kernel without RDMA.
Result<std::vector<std::string>> device_names();
// Ethernet ports of a device, also those that are down.
std::vector<Port> ports_of(const Context& context);
// The ports of all devices, without those devices that cannot be opened.
Result<std::vector<Port>> ports();

struct PortChoice {
    const Port* port = nullptr;
    PortGid gid;
};
// fe80::/10: usable on its own network segment only, so port_for() takes such a GID only if it is `local` itself.
bool is_link_local(const RoceGid& gid);
// The port and GID to use for a TCP connection with this local address, whose packets have this VLAN ID (0: no tag). A
// link must be in the VLAN of its connections (RFC 7609 section 5.1), so only GIDs of this VLAN are taken: the one that
// is this address, else the first of its family that is not link-local. If packets have no tag and no such GID is
// untagged, any GID will do: this node may route the address. nullopt: no active port has such a GID.
std::optional<PortChoice> port_for(const std::vector<Port>& ports, const RoceGid& local, std::uint16_t vlan = 0,
                                   RoceVersion version = RoceVersion::kV2);

}  // namespace smc::roce
