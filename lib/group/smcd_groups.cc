// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/group/smcd_groups.h"

namespace smc::group {

const SmcdGroup* SmcdGroups::find(const SmcdKey& key) const {
    const auto it = groups_.find(key);
    return it == groups_.end() ? nullptr : &it->second;
}

std::uint32_t SmcdGroups::establish(const SmcdKey& key, const std::string& host_name) {
    SmcdGroup& group = groups_[key];
    if (group.id == 0) {
        group.id = next_id_++;
    }
    if (!host_name.empty()) {
        group.host_name = host_name;
    }
    return group.id;
}

void SmcdGroups::connection_began(std::uint32_t id) {
    for (auto& [key, group] : groups_) {
        group.connections += group.id == id ? 1 : 0;
    }
}

void SmcdGroups::connection_ended(std::uint32_t id) {
    for (auto& [key, group] : groups_) {
        if (group.id == id && group.connections > 0) {
            group.connections--;
        }
    }
}

void SmcdGroups::drop_peer(Chid chid, const Gid& peer) {
    std::erase_if(groups_, [&](const auto& entry) { return entry.first.chid == chid && entry.first.peer == peer; });
}

}  // namespace smc::group
