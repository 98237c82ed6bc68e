// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/steer/vlans.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace smc {

namespace {

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
    std::uint16_t vlan(const NetDevice& device) {
        if (device.vlan != 0) {
            return device.vlan;
        }
        const auto [known, fresh] = known_.emplace(device.index, 0);
        if (!fresh) {
            return known->second;
        }
        if (const NetDevice* below = find(device.link); is_stacked(device) && !device.link_netns && below != nullptr) {
            return known->second = vlan(*below);
        }
        const auto [first, last] = ports_.equal_range(device.index);
        for (auto port = first; port != last && known->second == 0; ++port) {
            known->second = vlan(*port->second);
        }
        return known->second;
    }

 private:
    std::map<unsigned, const NetDevice*> by_index_;
    std::multimap<unsigned, const NetDevice*> ports_;  // by the bridge or bond to which they belong
    std::map<unsigned, std::uint16_t> known_;          // each device is looked at once
};

}  // namespace

Vlans::Vlans(const std::vector<NetDevice>& there, const std::vector<NetDevice>& own, std::optional<int> own_id) {
    Devices own_devices(own), devices(there);
    for (const NetDevice& device : there) {
        std::uint16_t vlan = devices.vlan(device);
        const NetDevice* outside = own_id && device.link_netns == own_id ? own_devices.find(device.link) : nullptr;
        if (outside != nullptr && device.kind == "veth") {
            outside = own_devices.find(outside->controller);
        } else if (outside != nullptr && !is_stacked(device)) {
            outside = nullptr;
        }
        if (vlan == 0 && outside != nullptr) {
            vlan = own_devices.vlan(*outside);
        }
        if (vlan != 0) {
            by_device_.emplace(device.index, vlan);
        }
    }
}

Result<Vlans> vlans_of(const std::vector<NetDevice>& there, const Rtnetlink& own, std::optional<int> own_id) {
    if (!own_id) {
        return Vlans(there, {}, own_id);
    }
    const auto devices = own.devices();
    return devices ? Result<Vlans>(Vlans(there, *devices, own_id)) : devices.error();
}

}  // namespace smc
