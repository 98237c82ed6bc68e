// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The mount namespace of this process.
#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <iterator>

namespace smc::os {

// Inode numbers that the initial mount namespace may have: the first since Linux 6.18; before, the first or the second
// number that the kernel gave to any namespace.
inline constexpr ino_t kInitialMounts[] = {0xeffffff8, 0xf0000000, 0xf0000001};

// Whether this process is in the node's mount namespace: its mounts outlive it. /proc/1/ns/mnt cannot tell if process 1
// has more capabilities than the agent.
[[nodiscard]] inline bool sees_the_nodes_mounts() {
    struct stat own {};
    struct stat first {};
    if (::stat("/proc/self/ns/mnt", &own) != 0) {
        return false;
    }
    if (::stat("/proc/1/ns/mnt", &first) == 0) {
        return own.st_ino == first.st_ino && own.st_dev == first.st_dev;
    }
    return std::ranges::find(kInitialMounts, own.st_ino) != std::end(kInitialMounts);
}

}  // namespace smc::os
