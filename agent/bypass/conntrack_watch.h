// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What goes past TCP goes past connection tracking, too: nobody there sees that the connection is in use, and what an
// administrator does to its entry means nothing. So a pair whose entry goes, goes back to TCP, where filters decide.
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
        std::uint64_t cookie;  // 0: the agent's own
        UniqueFd handle;
    };
    // The members' namespaces.
    [[nodiscard]] static std::vector<std::uint64_t> spaces_of(const std::vector<Bypass::Listed>& members);
    // Which members have lost an entry that they had when this was called before, by cookie.
    [[nodiscard]] std::vector<std::uint64_t> look(const std::vector<Bypass::Listed>& members,
                                                  const std::vector<Netns>& namespaces);

 private:
    using Entries = std::map<std::uint64_t, std::set<std::uint64_t>>;  // member -> namespaces that have one for it
    void look_in(const Netns& netns, const std::vector<Bypass::Listed>& members, Entries& now,
                 std::vector<std::uint64_t>& lost) const;

    Entries known_;
};

}  // namespace smc::bypass
