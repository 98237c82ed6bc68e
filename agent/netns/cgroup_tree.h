// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The cgroups below one directory, and which of them are kept if there are too many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "os/result.h"

namespace smc {

struct CgroupFound {
    std::uint64_t id = 0;
    std::string path;
    std::size_t parent = 0;  // index of the parent in the list, always before the child; the root's: 0
    // Length of the leading part of the path whose directories uid 0 owns: other users may have named those below it.
    std::size_t owned_by_uid0 = 0;
};

// 0: there is no such cgroup.
std::uint64_t cgroup_id(const std::string& path);
// Whether this errno means a lack of descriptors or memory. The file that could not be opened may then exist.
bool is_exhausted(int error);
// The cgroups of the tree, beginning with the root. A cgroup that is removed meanwhile is left out. An Error: the walk
// could not be completed.
Result<std::vector<CgroupFound>> walk_cgroups(const std::string& root);

// Which cgroups get one of `entries` map entries. Each cgroup's entries are shared among its children as evenly as
// their needs allow, so that a cgroup with very many descendants takes entries from its own share only. Of children
// with equal needs, those that `is_known` are preferred.
std::vector<bool> share_entries(const std::vector<CgroupFound>& tree, std::size_t entries,
                                const std::function<bool(std::uint64_t id)>& is_known);

}  // namespace smc
