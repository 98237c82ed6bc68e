// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/clc/selection.h"

#include <algorithm>

namespace smc::clc {

namespace {

// The client's order decides, because the client proposes.
std::optional<Eid> common_ueid(const V2Extension& v2, const LocalNode& node) {
    for (const Eid& eid : v2.eids) {
        if (std::find(node.ueids.begin(), node.ueids.end(), eid) != node.ueids.end()) {
            return eid;
        }
    }
    return std::nullopt;
}

// The client's order decides here, too (v2.1, "Feature negotiation"). A device with this node's own GID is skipped: a
// client that had it would read what it writes itself.
std::optional<IsmDevice> common_device(const SmcdExtension& smcd, const LocalNode& node, std::size_t& from) {
    while (const auto device = next_ism_device(smcd, from)) {
        const IsmDevice* const own = node.ism_on(device->chid);
        if (own != nullptr && own->gid != device->gid) {
            return device;
        }
    }
    return std::nullopt;
}

// Whether the client's field holds the number of this end's subnet (RFC 7609 section 3.5.1.2), which Linux compares. A
// client that sends its mask there, as A.2.2 calls the field, tells the length of the prefix only.
bool tells_subnet(Ipv4Mask field, const RoceOffer& roce) {
    const auto value = static_cast<std::uint32_t>(field);
    const auto byte = [&](unsigned shift) { return static_cast<std::uint8_t>(value >> shift); };
    const unsigned bits = std::min<unsigned>(roce.prefix_bits, 32);
    const std::uint32_t mask = bits == 0 ? 0 : UINT32_MAX << (32 - bits);
    return value == mask ||
           same_subnet(RoceGid::from_ipv4({byte(24), byte(16), byte(8), byte(0)}), roce.own_address, roce.prefix_bits);
}

bool in_subnet(const Subnet& subnet, const RoceOffer& roce) {
    if (roce.own_address.is_v4()) {
        return subnet.mask_bits == roce.prefix_bits && tells_subnet(subnet.mask, roce) &&
               same_subnet(roce.own_address, roce.peer_address, roce.prefix_bits);
    }
    // RFC 7609 section 3.5.1.2: this end is directly attached to at least one of the client's prefixes.
    return std::ranges::any_of(subnet.prefixes, [&](const Ipv6Prefix& prefix) {
        return same_subnet(prefix.prefix, roce.own_address, prefix.length) ||
               std::ranges::any_of(roce.other_addresses, [&](const Ipv6Prefix& other) {
                   return same_subnet(prefix.prefix, other.prefix, prefix.length);
               });
    });
}

}  // namespace

Reason select_smcd_v2(const Proposal& p, const LocalNode& node, std::size_t& from, SmcdPeer& peer) {
    const V2Extension& v2 = *p.v2;
    if (!v2.smcd) {
        return Reason::kNoSmcdV2Extension;
    }
    // A release 0 client cannot know Emulated-ISM; a reserved CHID does not match for it.
    const bool emulated = v2.release >= kRelease1 && (v2.features & kFeatureEmulatedIsm) != 0;
    const auto device = emulated ? common_device(*v2.smcd, node, from) : std::nullopt;
    if (!device) {
        return Reason::kNoSmcdV2Device;
    }
    auto eid = common_ueid(v2, node);
    if (!eid && v2.seid_present && node.seid == v2.smcd->seid) {
        eid = node.seid;  // UEIDs before the SEID
    }
    if (!eid) {
        return !v2.eids.empty() ? Reason::kNoUeid : Reason::kNoSeid;
    }
    peer.gid = device->gid;
    peer.chid = device->chid;
    peer.eid = *eid;
    peer.release = kRelease1;  // the lower one of both sides: the client's is at least this
    return Reason::kNone;
}

Reason select_smcr_v2(const Proposal& p, const LocalNode& node, const std::optional<RoceOffer>& roce, SmcrPeer& peer) {
    const V2Extension& v2 = *p.v2;
    if (!roce || !roce->v2 || v2.roce_gid.is_zero() || v2.roce_gid.is_v4() != roce->gids.front().is_v4()) {
        return Reason::kNoSmcrDevice;
    }
    const auto eid = common_ueid(v2, node);
    if (!eid) {
        return Reason::kNoUeid;
    }
    peer.release = std::min(v2.release, kRelease1);
    if (peer.release >= kRelease1) {
        if (v2.max_connections < kFewestConnections) {
            return Reason::kMaxConnectionsMismatch;
        }
        if (v2.max_links < 1) {
            return Reason::kMaxLinksMismatch;
        }
        peer.max_connections = std::min(v2.max_connections, node.max_connections);
        peer.max_links = std::min(v2.max_links, node.max_links);
        peer.features = v2.features & kFeatureEmulatedIsm;
    } else {
        peer.max_connections = node.max_connections;
        peer.max_links = kUnnegotiatedLinks;
    }
    peer.version = kVersion2;
    peer.id = p.peer_id;
    peer.link.gid = v2.roce_gid.normalised();
    peer.link.mac = p.mac;
    peer.eid = *eid;
    return Reason::kNone;
}

Reason select_smcr_v1(const Proposal& p, const std::optional<RoceOffer>& roce, SmcrPeer& peer) {
    if (!roce || !roce->v1) {
        return roce ? Reason::kVersionMismatch : Reason::kNoSmcrDevice;
    }
    if (!p.subnet || !in_subnet(*p.subnet, *roce)) {
        return Reason::kSubnetMismatch;
    }
    peer.version = kVersion1;
    peer.max_links = kUnnegotiatedLinks;
    peer.id = p.peer_id;
    peer.link.gid = p.v1_gid.normalised();
    peer.link.mac = p.mac;
    return Reason::kNone;
}

}  // namespace smc::clc
