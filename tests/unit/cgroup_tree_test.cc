// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which of the served cgroups have an entry, if there are more cgroups than entries.
#include "agent/netns/cgroup_tree.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

using namespace smc;

namespace {

struct Tree {
    std::vector<CgroupFound> nodes{{1, "/", 0}};

    std::size_t add(std::size_t parent) {
        nodes.push_back({nodes.size() + 1, "", parent});
        return nodes.size() - 1;
    }
    std::vector<std::size_t> add_many(std::size_t parent, std::size_t count) {
        std::vector<std::size_t> added;
        for (std::size_t i = 0; i < count; i++) {
            added.push_back(add(parent));
        }
        return added;
    }
    [[nodiscard]] std::vector<bool> share(std::size_t entries, std::uint64_t known_from = 1,
                                          std::uint64_t known_to = 0) const {
        return share_entries(nodes, entries, [=](std::uint64_t id) { return id >= known_from && id <= known_to; });
    }
};

std::size_t kept(const std::vector<bool>& which, const std::vector<std::size_t>& of) {
    return static_cast<std::size_t>(std::ranges::count_if(of, [&](std::size_t i) { return which[i]; }));
}

}  // namespace

TEST_CASE("Who makes many cgroups takes entries from nobody else") {
    Tree tree;
    const auto tenants = tree.add_many(0, 3);
    // The first tenant has many cgroups at one level, the second many levels; the third has a few, no nearer to the
    // root.
    const auto crowd = tree.add_many(tenants[0], 1000);
    std::size_t deep = tenants[1];
    std::vector<std::size_t> chain;
    for (int i = 0; i < 1000; i++) {
        chain.push_back(deep = tree.add(deep));
    }
    std::vector<std::size_t> few{tree.add(tenants[2])};
    few.push_back(tree.add(few.back()));

    const auto which = tree.share(504);
    CHECK(std::ranges::count(which, true) == 504);
    CHECK(kept(which, few) == few.size());
    CHECK(kept(which, tenants) == 3);
    CHECK(kept(which, crowd) == 249);
    CHECK(kept(which, chain) == 249);
    CHECK((which[chain[248]] && !which[chain[249]]));  // no cgroup without its parent
}

TEST_CASE("Where there is an entry for each, each has it") {
    Tree tree;
    tree.add_many(tree.add(0), 10);
    CHECK(std::ranges::count(tree.share(12), true) == 12);
    CHECK(std::ranges::count(tree.share(100), true) == 12);
    CHECK(std::ranges::count(tree.share(1), true) == 1);
    CHECK(std::ranges::count(tree.share(0), true) == 0);
}

TEST_CASE("Those that have a place keep it before their like") {
    Tree tree;
    const auto crowd = tree.add_many(0, 100);
    const auto which = tree.share(11, 41, 50);  // the IDs of ten of them
    CHECK(kept(which, {crowd.begin() + 39, crowd.begin() + 49}) == 10);
    CHECK(kept(which, crowd) == 10);
}
