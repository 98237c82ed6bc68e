// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// SMC-D link groups: the peers this node has a first contact with (SMC v2.1, "First Contact Extension").
// A group lasts as long as the fabric's connection to the peer, so both ends lose it together.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include "smc/wire/ids.h"

namespace smc {

struct LinkGroupKey {
    Gid peer;
    Chid chid{};
    Eid eid{};
    auto operator<=>(const LinkGroupKey&) const = default;
};

struct LinkGroup {
    std::uint32_t id = 0;
    std::string host_name;  // the peer's
    std::uint64_t connections = 0;
};

class LinkGroups {
 public:
    [[nodiscard]] const LinkGroup* find(const LinkGroupKey& key) const {
        const auto it = groups_.find(key);
        return it == groups_.end() ? nullptr : &it->second;
    }
    // The handshake is complete on this side. Returns the group's id.
    std::uint32_t establish(const LinkGroupKey& key, const std::string& host_name);
    void connection_began(std::uint32_t id);
    void connection_ended(std::uint32_t id);
    void drop(const LinkGroupKey& key) { groups_.erase(key); }
    void drop_peer(const Gid& peer) {
        std::erase_if(groups_, [&](const auto& entry) { return entry.first.peer == peer; });
    }
    [[nodiscard]] const std::map<LinkGroupKey, LinkGroup>& all() const { return groups_; }

 private:
    std::uint32_t next_id_ = 1;
    std::map<LinkGroupKey, LinkGroup> groups_;
};

inline std::uint32_t LinkGroups::establish(const LinkGroupKey& key, const std::string& host_name) {
    LinkGroup& group = groups_[key];
    if (group.id == 0) {
        group.id = next_id_++;
    }
    if (!host_name.empty()) {
        group.host_name = host_name;
    }
    return group.id;
}

inline void LinkGroups::connection_began(std::uint32_t id) {
    for (auto& [key, group] : groups_) {
        group.connections += group.id == id ? 1 : 0;
    }
}

inline void LinkGroups::connection_ended(std::uint32_t id) {
    for (auto& [key, group] : groups_) {
        if (group.id == id && group.connections > 0) {
            group.connections--;
        }
    }
}

}  // namespace smc
