// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/smcr/offer.h"

#include <algorithm>

namespace smc::smcr {

std::optional<roce::PortChoice> choose_port(const std::vector<roce::Port>& ports, const Local& local,
                                            std::uint8_t smcr_version) {
    if (!local.vlan) {
        return std::nullopt;
    }
    if (smcr_version == clc::kVersion1) {
        if (auto choice = roce::port_for(ports, local.address, *local.vlan, roce::RoceVersion::kV1)) {
            return choice;
        }
    }
    return roce::port_for(ports, local.address, *local.vlan);
}

std::optional<clc::RoceOffer> ports_to_offer(const std::vector<roce::Port>& ports, const Local& local, bool v1, bool v2,
                                             bool peer_agent) {
    auto for_v1 = v1 ? choose_port(ports, local, clc::kVersion1) : std::nullopt;
    if (for_v1 && !peer_agent && for_v1->gid.version != roce::RoceVersion::kV1) {
        for_v1.reset();
    }
    const auto for_v2 = v2 ? choose_port(ports, local, clc::kVersion2) : std::nullopt;
    if (for_v1 && for_v2 && for_v1->gid.mac != for_v2->gid.mac) {
        for_v1.reset();  // a Proposal has one MAC address: a Linux server sends to it in either version
    }
    if (!for_v1 && !for_v2) {
        return std::nullopt;
    }
    clc::RoceOffer offer;
    offer.v1 = for_v1.has_value();
    offer.v2 = for_v2.has_value();
    offer.mac = (for_v2 ? for_v2 : for_v1)->gid.mac;
    if (for_v1) {
        offer.v1_gid = for_v1->gid.gid;
    }
    if (!for_v2) {
        return offer;
    }
    offer.gids.push_back(for_v2->gid.gid);
    for (const roce::Port& port : ports) {
        const auto fits = [&](const roce::PortGid& gid) {
            return gid.vlan == for_v2->gid.vlan && gid.gid.is_v4() == for_v2->gid.gid.is_v4() &&
                   !roce::is_link_local(gid.gid) && std::ranges::find(offer.gids, gid.gid) == offer.gids.end();
        };
        const auto other = std::ranges::find_if(port.gids, fits);
        if (port.active && &port != for_v2->port && other != port.gids.end() && offer.gids.size() < clc::kMaxGids) {
            offer.gids.push_back(other->gid);
        }
    }
    return offer;
}

}  // namespace smc::smcr
