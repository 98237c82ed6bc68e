// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/netns/cgroup_tree.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

namespace smc {

namespace {

// id 0: there is no such cgroup.
CgroupFound look_at(const std::string& path, const CgroupFound* parent, std::size_t place) {
    struct stat status {};
    const bool there = ::stat(path.c_str(), &status) == 0;
    const bool is_uid0s = parent == nullptr || (parent->owned_by_uid0 == parent->path.size() && status.st_uid == 0);
    return {there ? status.st_ino : 0, path, place, is_uid0s ? path.size() : parent->owned_by_uid0};
}

}  // namespace

std::uint64_t cgroup_id(const std::string& path) {
    return look_at(path, nullptr, 0).id;
}

bool is_exhausted(int error) {
    return error == EMFILE || error == ENFILE || error == ENOMEM;
}

// Without recursive_directory_iterator, which stops at a cgroup that is removed meanwhile.
Result<std::vector<CgroupFound>> walk_cgroups(const std::string& root) {
    namespace fs = std::filesystem;
    std::vector<CgroupFound> found{look_at(root, nullptr, 0)};
    for (std::size_t at = 0; at < found.size(); at++) {
        const std::string path = found[at].path;
        std::error_code failed;
        for (auto it = fs::directory_iterator(path, failed); !failed && it != fs::directory_iterator();
             it.increment(failed)) {
            std::error_code ignored;
            if (!it->is_directory(ignored)) {
                continue;
            }
            if (CgroupFound one = look_at(it->path().string(), &found[at], at); one.id != 0) {
                found.push_back(std::move(one));
            }
        }
        if (is_exhausted(failed.value())) {
            return Error{failed.value(), "reading " + path};
        }
    }
    return found;
}

std::vector<bool> share_entries(const std::vector<CgroupFound>& tree, std::size_t entries,
                                const std::function<bool(std::uint64_t id)>& is_known) {
    struct Node {
        std::size_t size = 1;     // cgroups in this subtree, this one included
        std::size_t entries = 0;  // map entries for this subtree
        bool known = false;
        std::vector<std::size_t> children;
    };
    std::vector<Node> nodes(tree.size());
    for (std::size_t i = tree.size(); i-- > 1;) {
        nodes[tree[i].parent].size += nodes[i].size;
        nodes[tree[i].parent].children.push_back(i);
        nodes[i].known = is_known(tree[i].id);
    }
    std::vector<bool> kept(tree.size());
    if (!nodes.empty()) {
        nodes[0].entries = entries;
    }
    for (std::size_t i = 0; i < nodes.size(); i++) {
        Node& node = nodes[i];
        kept[i] = node.entries > 0;
        std::size_t rest = node.entries - (kept[i] ? 1 : 0), left = node.children.size();
        // Children with the smallest subtrees first: what they do not need is left for the others. If there is less
        // than one entry for each child, the last children get one.
        std::ranges::stable_sort(node.children, {},
                                 [&](std::size_t child) { return std::pair(nodes[child].size, nodes[child].known); });
        for (const std::size_t child : node.children) {
            nodes[child].entries = std::min(nodes[child].size, rest / left--);
            rest -= nodes[child].entries;
        }
    }
    return kept;
}

}  // namespace smc
