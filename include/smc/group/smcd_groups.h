// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// SMC-D link groups: the peers that this node has had a first contact with (SMC v2.1, "First Contact Extension"). A
// group lasts as long as the fabric's connection to the peer, so both ends lose it together.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include "smc/clc/node.h"

namespace smc::group {

// A node may be the server in one group and the client in another with the same peer: first contacts in both directions
// at once do not know of each other.
struct SmcdKey {
    bool server = false;  // this node's role
    Gid peer;
    Chid chid{};
    Eid eid{};
    auto operator<=>(const SmcdKey&) const = default;
};
inline SmcdKey key_of(bool server, const clc::SmcdPeer& peer) {
    return {server, peer.gid, peer.chid, peer.eid};
}

struct SmcdGroup {
    std::uint32_t id = 0;   // CLC's link ID
    std::string host_name;  // the peer's
    std::uint64_t connections = 0;
};

class SmcdGroups {
 public:
    [[nodiscard]] const SmcdGroup* find(const SmcdKey& key) const;
    // The handshake is complete on this side. Returns the group's ID.
    std::uint32_t establish(const SmcdKey& key, const std::string& host_name);
    void connection_began(std::uint32_t id);
    void connection_ended(std::uint32_t id);
    // The peer says that it does not know this group.
    void drop(const SmcdKey& key) { groups_.erase(key); }
    // The peer is gone.
    void drop_peer(Chid chid, const Gid& peer);
    [[nodiscard]] const std::map<SmcdKey, SmcdGroup>& all() const { return groups_; }

 private:
    std::uint32_t next_id_ = 1;
    std::map<SmcdKey, SmcdGroup> groups_;
};

}  // namespace smc::group
