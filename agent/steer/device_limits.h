// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Qdiscs, filters and XDP programs that see the packets of a device but not those of a leg. A leg's packets are turned
// round at the device's egress, in front of its queueing disciplines and of filters behind ours, and arrive without
// passing a driver's XDP program.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "os/rtnetlink.h"

namespace smc::bpf {

struct DeviceRules {
    std::vector<std::string> qdiscs{};    // kinds; without the kernel's built-in defaults ("noqueue")
    std::vector<Filter> filters{};        // at its clsact's egress
    bool tcx_behind = false;              // programs of tcx at its egress come behind ours
    bool native_xdp = false;              // it has an XDP program in the driver or the hardware
    std::vector<std::string> opposite{};  // veth: qdiscs of its other end, if that is in the agent's namespace
};

// The first limit that the packets of a leg would not meet, or that could keep some of them from our program; empty:
// there is none. `own_priority`: the priority of our filter; none: ours is attached by tcx, in front of all filters.
[[nodiscard]] std::string limit_of(const DeviceRules& rules, std::optional<unsigned> own_priority);

// Whether packets that leave by the device may be encrypted by it, by a device below it or by one of its ports:
// WireGuard, MACsec, a VPN's tun device. Such a limit concerns connections that use the device, not the whole
// namespace. `devices`: those of its namespace.
[[nodiscard]] bool encrypts(const NetDevice& device, const std::vector<NetDevice>& devices);

// The rules of these devices, by index. `there` belongs to their network namespace, `own` to the agent's.
[[nodiscard]] Result<std::map<unsigned, DeviceRules>> device_rules(const Rtnetlink& there,
                                                                   const std::vector<NetDevice>& devices,
                                                                   const Rtnetlink& own);

}  // namespace smc::bpf
