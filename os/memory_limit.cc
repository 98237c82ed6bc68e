// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "os/memory_limit.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace smc {

namespace {

// A cgroup hierarchy: where it is mounted, which part of it is mounted there, and the cgroup of the process.
struct Mounted {
    std::string mount, root, path;
};

// The process's cgroup, from /proc/self/cgroup: "0::/path" for v2, "4:memory,other:/path" for v1.
std::optional<std::string> own_path(bool v2) {
    std::ifstream lines("/proc/self/cgroup");
    for (std::string line; std::getline(lines, line);) {
        const auto first = line.find(':'), second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) {
            continue;
        }
        const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
        if (v2 ? line.starts_with("0::") : controllers.find(",memory,") != std::string::npos) {
            return line.substr(second + 1);
        }
    }
    return std::nullopt;
}

// A container may have two mounts of a hierarchy at the same place: its own part, and over it the node's whole tree.
std::optional<Mounted> mounted(bool v2) {
    const auto path = own_path(v2);
    std::optional<Mounted> found;
    std::ifstream mounts("/proc/self/mountinfo");
    for (std::string line; path && std::getline(mounts, line);) {
        std::istringstream words(line.substr(0, line.find(" - ")));
        std::string skipped, root, mount;
        words >> skipped >> skipped >> skipped >> root >> mount;
        std::istringstream rest(line.substr(std::min(line.size(), line.find(" - ") + 3)));
        std::string type, device, options;
        rest >> type >> device >> options;
        if (v2 ? type == "cgroup2" : type == "cgroup" && ("," + options + ",").find(",memory,") != std::string::npos) {
            if (root == "/") {
                return Mounted{mount, "", *path};
            }
            if (!found && path->starts_with(root)) {
                found = Mounted{mount, root, *path};
            }
        }
    }
    return found;
}

}  // namespace

MemoryLimit::MemoryLimit() {
    for (const bool v2 : {true, false}) {
        const auto where = mounted(v2);
        if (!where) {
            continue;
        }
        std::filesystem::path below = std::filesystem::path(where->path.substr(where->root.size())).relative_path();
        const std::vector<const char*> names =
            v2 ? std::vector{"memory.max", "memory.high"} : std::vector{"memory.limit_in_bytes"};
        for (;; below = below.parent_path()) {
            for (const char* name : names) {
                files_.push_back(std::filesystem::path(where->mount) / below / name);
            }
            if (below.empty()) {
                break;
            }
        }
    }
}

std::optional<std::uint64_t> MemoryLimit::read() const {
    constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60;  // v1 reports a huge number
    std::uint64_t lowest = kNoLimit;
    for (const auto& file : files_) {
        std::uint64_t bytes = 0;
        if (std::ifstream(file) >> bytes) {
            lowest = std::min(lowest, bytes);
        }
    }
    return lowest < kNoLimit ? std::optional(lowest) : std::nullopt;
}

}  // namespace smc
