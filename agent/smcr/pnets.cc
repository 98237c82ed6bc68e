// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/smcr/pnets.h"

#include <algorithm>

namespace smc::smcr {

Pnets::Pnets(const std::vector<Pnet>& wanted) {
    for (const Pnet& pnet : wanted) {
        Entry& entry = entries_.emplace_back(Entry{pnet.id, pnet.devices, {}});
        for (const std::string& device : pnet.devices) {
            devices_.insert(device.substr(0, device.find('/')));
        }
        for (const std::string& network : pnet.networks) {
            entry.networks.push_back(*parse_cidr(network));
        }
    }
}

std::string Pnets::of_address(const std::array<std::uint8_t, 16>& address) const {
    const auto it = std::ranges::find_if(entries_, [&](const Entry& entry) {
        return std::ranges::any_of(entry.networks, [&](const Cidr& network) { return network.contains(address); });
    });
    return it == entries_.end() ? "" : it->id;
}

std::string Pnets::of_port(const std::string& device, unsigned number) const {
    const auto it = std::ranges::find_if(entries_, [&](const Entry& entry) {
        return std::ranges::any_of(entry.devices, [&](const std::string& name) {
            return name == device || name == device + "/" + std::to_string(number);
        });
    });
    return it == entries_.end() ? "" : it->id;
}

}  // namespace smc::smcr
