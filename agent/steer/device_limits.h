// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What shapes or filters the packets of a device, and not those of a leg: these are turned round at the device's
// egress, in front of its queueing disciplines and of filters behind ours, and arrive without a driver's XDP.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "os/rtnetlink.h"

namespace smc::bpf {

// Of one device.
struct DeviceRules {
    std::vector<std::string> qdiscs{};    // kinds; without those that the kernel has for everybody ("noqueue")
    std::vector<unsigned> filters{};      // priorities of filters at its clsact's egress
    bool tcx_behind = false;              // programs of tcx at its egress come behind ours
    bool native_xdp = false;              // a driver's, or the hardware's
    std::vector<std::string> opposite{};  // veth: qdiscs of its other end, if that is in the agent's namespace
};

// Nothing: the legs' packets meet all that others meet. `own_priority`: of our filter; nothing: it is not one (tcx),
// and comes before all filters.
[[nodiscard]] std::string limit_of(const DeviceRules& rules, std::optional<unsigned> own_priority);

// Of these devices, by index, asked in their own network namespace; `own`: of the agent's.
[[nodiscard]] Result<std::map<unsigned, DeviceRules>> device_rules(const Rtnetlink& there,
                                                                   const std::vector<NetDevice>& devices,
                                                                   const Rtnetlink& own);

}  // namespace smc::bpf
