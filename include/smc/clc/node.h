// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// This node and its peer, as CLC describes them.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "smc/times.h"
#include "smc/wire/clc.h"
#include "smc/wire/qp_end.h"

namespace smc::clc {

// Identity of this node on the wire; the same for every handshake of an agent.
struct LocalNode {
    PeerId peer_id{};
    std::vector<IsmDevice> ism;  // at most kMostIsmDevices, in order of preference, each with a CHID of its own
    std::vector<Eid> ueids;      // at most kMostUeids, in order of preference
    std::optional<Eid> seid;
    std::string host_name;
    std::chrono::milliseconds step_timeout{6000};
    std::chrono::milliseconds last_word = Times{}.last_word, late = Times{}.late;
    std::uint8_t max_connections = 255;  // of an SMC-R link group, 16 to 255
    std::uint8_t max_links = 2;          // likewise, 1 or 2; before release 1 there is no such choice

    // The node's device on this fabric; nullptr: it has none there.
    [[nodiscard]] const IsmDevice* ism_on(Chid chid) const;
};

// How SMC-R could be used for one TCP connection.
struct RoceOffer {
    std::vector<RoceGid> gids;  // for version 2: of this node's ports, 1 to 8; the one to use comes first
    Mac mac;                    // of the port of that GID; if there is only version 1, of its port
    bool v1 = false, v2 = true;
    RoceGid v1_gid{};  // for version 1; zero: it is the first of `gids`
    // For version 1, which stays within a subnet: both ends of the TCP connection, and this end's prefix.
    RoceGid own_address, peer_address;
    std::uint8_t prefix_bits = 0;
    // For version 1 with IPv6: the other addresses of the same interface, whose networks this end is in as well.
    std::vector<Ipv6Prefix> other_addresses{};
};

// The means of this node for one TCP connection.
struct Means {
    bool smcd = true;
    std::optional<RoceOffer> roce{};

    [[nodiscard]] bool any() const { return smcd || roce; }
};

// Links of a group before release 1, where peers cannot agree on fewer (RFC 7609 section 2.2.2).
inline constexpr std::uint8_t kUnnegotiatedLinks = 2;

// An RMBE as CLC tells it (RFC 7609 A.2.3).
struct Rmbe {
    RKey rkey{};
    VirtualAddress rmb_address{};
    std::uint8_t index = 1;  // in the RMB, from 1
    AlertToken token{};
    BufferSize size{};
};
// An RMBE of this node, the link that it is reached over, and whether that link is the group's first contact.
struct LocalRmbe {
    QpEnd link;
    Rmbe rmbe;
    bool first_contact = false;  // the server decides it, and the link type
    LinkType link_type = LinkType::kDirect;
};

struct LocalDmb {
    DmbToken token{};
    BufferSize size{};
};

// The agreement with the peer, for SMC-D.
struct SmcdPeer {
    Gid gid;
    Chid chid{};
    Eid eid{};
    DmbToken token{};
    BufferSize dmb_size{};
    bool first_contact = false;
    std::string host_name;  // from the FCE, empty on subsequent contact
    std::uint8_t release = 0;
};

// The same for SMC-R.
struct SmcrPeer {
    std::uint8_t version = 2;
    PeerId id{};
    QpEnd link;                    // at the server, before the Confirm: only the client's GID and MAC address
    List<RoceGid, kMaxGids> gids;  // first contact, version 2, at the server: the client's ports, that of `link` first
    Rmbe rmbe;
    Eid eid{};  // version 2
    bool first_contact = false;
    LinkType link_type = LinkType::kDirect;
    std::uint8_t max_connections = 255;
    std::uint8_t max_links = 1;
    std::uint16_t features = 0;  // supplemental features that both sides have
    std::string host_name;
    Os os = Os::kUnknown;
    std::uint8_t release = kRelease1;
};

// The content of Accept and Confirm about the sender's side of the connection that was agreed on with `peer`.
AcceptD own_half(Type type, const LocalNode& node, const SmcdPeer& peer, const LocalDmb& own);
AcceptR own_half(Type type, const LocalNode& node, const RoceOffer& offer, const SmcrPeer& peer, const LocalRmbe& own);

}  // namespace smc::clc
