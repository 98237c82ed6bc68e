// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/steer/vlans.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace smc {

namespace {

constexpr unsigned kDeepest = 8;  // as many devices as the kernel allows on top of each other

// Kinds of devices that send by the device that they name (IFLA_LINK).
bool is_stacked(const NetDevice& device) {
    static constexpr std::array<std::string_view, 6> kStacked{"vlan",   "macvlan", "macvtap",
                                                              "ipvlan", "ipvtap",  "macsec"};
    return std::ranges::find(kStacked, device.kind) != kStacked.end();
}

// Devices of a namespace by their index.
class Devices {
 public:
    explicit Devices(const std::vector<NetDevice>& all) {
        for (const NetDevice& device : all) {
            by_index_.emplace(device.index, &device);
            if (device.controller != 0) {
                ports_.emplace(device.controller, &device);
            }
        }
    }
    [[nodiscard]] const NetDevice* find(unsigned index) const {
        const auto it = by_index_.find(index);
        return it == by_index_.end() ? nullptr : it->second;
    }
    // The VLAN of a device or of the first below it that has one, within this namespace. 0: none.
    [[nodiscard]] std::uint16_t vlan(const NetDevice& device, unsigned depth = 0) const {
        if (device.vlan != 0 || depth == kDeepest) {
            return device.vlan;
        }
        if (const NetDevice* below = find(device.link); is_stacked(device) && !device.link_netns && below != nullptr) {
            return vlan(*below, depth + 1);
        }
        const auto [first, last] = ports_.equal_range(device.index);
        for (auto port = first; port != last; ++port) {
            if (const std::uint16_t found = vlan(*port->second, depth + 1); found != 0) {
                return found;
            }
        }
        return 0;
    }

 private:
    std::map<unsigned, const NetDevice*> by_index_;
    std::multimap<unsigned, const NetDevice*> ports_;  // by the bridge or bond to which they belong
};

}  // namespace

Vlans::Vlans(const std::vector<NetDevice>& there, const std::vector<NetDevice>& own, std::optional<int> own_id) {
    const Devices own_devices(own), devices(there);
    for (const NetDevice& device : own) {
        if (const std::uint16_t vlan = own_devices.vlan(device); vlan != 0) {
            own_.emplace(device.index, vlan);
        }
    }
    for (const NetDevice& device : there) {
        Way way{devices.vlan(device)};
        const NetDevice* outside = own_id && device.link_netns == own_id ? own_devices.find(device.link) : nullptr;
        if (way.vlan == 0 && outside != nullptr && is_stacked(device)) {
            way.vlan = own_devices.vlan(*outside);
        } else if (way.vlan == 0 && outside != nullptr && device.kind == "veth") {
            const NetDevice* bridge = own_devices.find(outside->controller);
            way.vlan = bridge != nullptr ? own_devices.vlan(*bridge) : std::uint16_t{0};
            way.routed = way.vlan == 0 && !own_.empty();
        }
        if (way.vlan != 0 || way.routed) {
            there_.emplace(device.index, way);
        }
    }
}

std::uint16_t Vlans::of(unsigned device, const Endpoint& to, const Rtnetlink& own) const {
    const auto way = there_.find(device);
    if (way == there_.end() || !way->second.routed) {
        return way == there_.end() ? std::uint16_t{0} : way->second.vlan;
    }
    const auto route = own.route(std::nullopt, to);
    const auto vlan = own_.find(route ? route->device : 0);
    return vlan == own_.end() ? std::uint16_t{0} : vlan->second;
}

Result<Vlans> vlans_of(const std::vector<NetDevice>& there, const Rtnetlink& own, std::optional<int> own_id) {
    if (!own_id) {
        return Vlans(there, {}, own_id);
    }
    const auto devices = own.devices();
    return devices ? Result<Vlans>(Vlans(there, *devices, own_id)) : devices.error();
}

}  // namespace smc
