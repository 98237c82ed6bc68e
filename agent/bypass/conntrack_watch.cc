// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/bypass/conntrack_watch.h"

#include <optional>

#include "agent/steer/addresses.h"
#include "os/conntrack.h"
#include "os/in_namespace.h"

namespace smc::bypass {

std::vector<std::uint64_t> ConntrackWatch::spaces_of(const std::vector<Bypass::Listed>& members) {
    std::set<std::uint64_t> cookies;
    for (const auto& listed : members) {
        cookies.insert(listed.member.netns);
    }
    return {cookies.begin(), cookies.end()};
}

// A member's own tuple is one direction of its connection's entry, in its own namespace and mostly in the host's, too.
void ConntrackWatch::look_in(const Netns& netns, const std::vector<Bypass::Listed>& members, Entries& now,
                             std::vector<std::uint64_t>& lost) const {
    std::optional<InNamespace> inside;
    if (netns.cookie != 0) {
        inside.emplace(netns.handle.get());
        if (!inside->entered()) {
            return;
        }
    }
    auto conntrack = Conntrack::open();
    if (!conntrack) {
        return;
    }
    for (const auto& [cookie, member, sent] : members) {
        if (netns.cookie != 0 && member.netns != netns.cookie) {
            continue;
        }
        const auto before = known_.find(cookie);
        const bool had = before != known_.end() && before->second.contains(netns.cookie);
        const auto has = conntrack->has(local_of(member.app), remote_of(member.app));
        if (has.value_or(had)) {
            now[cookie].insert(netns.cookie);
        } else if (had) {
            lost.push_back(cookie);
        }
    }
}

std::vector<std::uint64_t> ConntrackWatch::look(const std::vector<Bypass::Listed>& members,
                                                const std::vector<Netns>& namespaces) {
    Entries now;
    std::vector<std::uint64_t> lost;
    for (const Netns& netns : namespaces) {
        look_in(netns, members, now, lost);
    }
    known_ = std::move(now);
    return lost;
}

}  // namespace smc::bypass
