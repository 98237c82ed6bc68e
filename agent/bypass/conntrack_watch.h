// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Bytes that go past TCP go past connection tracking, too: there the connection looks idle, and deleting its entry
// would have no effect. So a pair whose entry is gone returns to TCP, where filters decide.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "agent/bypass/bypass.h"
#include "os/unique_fd.h"

namespace smc::bypass {

class ConntrackWatch {
 public:
    struct Netns {
        std::uint64_t cookie;  // 0: the agent's own namespace
        UniqueFd handle;
    };
    // Cookies of the members' namespaces.
    [[nodiscard]] static std::vector<std::uint64_t> spaces_of(const std::vector<Bypass::Listed>& members);
    // Cookies of members that have lost an entry since the last call.
    [[nodiscard]] std::vector<std::uint64_t> look(const std::vector<Bypass::Listed>& members,
                                                  const std::vector<Netns>& namespaces);

 private:
    using Entries = std::map<std::uint64_t, std::set<std::uint64_t>>;  // member -> namespaces that have an entry for it
    void look_in(const Netns& netns, const std::vector<Bypass::Listed>& members, Entries& now,
                 std::vector<std::uint64_t>& lost) const;

    Entries known_;
};

}  // namespace smc::bypass
