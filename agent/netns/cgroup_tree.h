// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The cgroups below one directory, and whose are kept where there are too many.
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
    std::size_t parent = 0;  // place of its parent in the list, which is before its own; the root's: 0
};

// 0: there is none.
std::uint64_t cgroup_id(const std::string& path);
// What cannot be opened for want of these may be there all the same.
bool is_used_up(int error);
// The tree; the root is the first. A cgroup that vanishes meanwhile costs only itself. An Error: it could not be walked
// to the end.
Result<std::vector<CgroupFound>> walk_cgroups(const std::string& root);

// Which of them have a place when there are so many entries only. At every cgroup they are shared among its children as
// evenly as these need them, so that who makes many takes them from his own and from nobody else. Of children that are
// alike, those that `is_known` come first.
std::vector<bool> share_entries(const std::vector<CgroupFound>& tree, std::size_t entries,
                                const std::function<bool(std::uint64_t id)>& is_known);

}  // namespace smc
