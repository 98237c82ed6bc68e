// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/clc/node.h"

#include <algorithm>

namespace smc::clc {

const IsmDevice* LocalNode::ism_on(Chid chid) const {
    const auto it = std::ranges::find(ism, chid, &IsmDevice::chid);
    return it == ism.end() ? nullptr : &*it;
}

AcceptD own_half(Type type, const LocalNode& node, const SmcdPeer& peer, const LocalDmb& own) {
    const Gid gid = node.ism_on(peer.chid)->gid;
    AcceptD half;
    half.type = type;
    half.first_contact = peer.first_contact;
    half.gid = first_part(gid);
    half.gid_part2 = second_part(gid);
    half.token = own.token;
    half.dmbe_size = own.size;
    half.chid = peer.chid;
    half.eid = peer.eid;
    if (peer.first_contact) {
        FirstContact& fce = half.fce.emplace();
        fce.release = peer.release;
        fce.features = kFeatureEmulatedIsm;
        fce.host_name = HostName::padded(node.host_name);
    }
    return half;
}

AcceptR own_half(Type type, const LocalNode& node, const RoceOffer& offer, const SmcrPeer& peer, const LocalRmbe& own) {
    AcceptR half;
    half.type = type;
    half.version = peer.version;
    half.first_contact = peer.first_contact;
    half.peer_id = node.peer_id;
    half.gid = own.link.gid;
    half.mac = own.link.mac;
    half.qpn = own.link.qpn;
    half.psn = own.link.psn;
    half.mtu = own.link.mtu;
    half.rkey = own.rmbe.rkey;
    half.rmb_address = own.rmbe.rmb_address;
    half.rmbe_index = own.rmbe.index;
    half.alert_token = own.rmbe.token;
    half.rmbe_size = own.rmbe.size;
    half.eid = peer.eid;
    if (peer.first_contact && peer.version >= kVersion2) {
        FirstContact& fce = half.fce.emplace();
        fce.link_type = peer.link_type;
        fce.release = peer.release;
        fce.host_name = HostName::padded(node.host_name);
        if (peer.release >= kRelease1) {
            // v2.1, "Feature negotiation", item 9: an Accept has the server's features, a Confirm the common ones.
            fce.features = type == Type::kAccept ? kFeatureEmulatedIsm : peer.features;
            fce.max_connections = peer.max_connections;
            fce.max_links = peer.max_links;
        }
        if (type == Type::kConfirm) {
            half.gid_list.push_back(own.link.gid);
            for (const RoceGid& gid : offer.gids) {
                if (gid != own.link.gid) {
                    half.gid_list.push_back(gid);
                }
            }
        }
    }
    return half;
}

}  // namespace smc::clc
