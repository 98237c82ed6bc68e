// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Follows the cgroups below one directory: which exist, which rules match them, when they change.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "agent/policy/policy.h"
#include "agent/steer/map.h"
#include "bpf/abi.h"

namespace smc {

// Where cgroup v2 is mounted; an Error if it is not.
Result<std::string> find_cgroup_mount();

class Cgroups {
 public:
    // on_change: a cgroup appeared, vanished, or became populated or empty.
    // `own` is the agent's: it is never enrolled.
    Cgroups(asio::io_context& io, std::string root, std::string own, const Policy& policy,
            bpf::Map<std::uint64_t, smc_cgroup> map, std::function<void()> on_change);

    Result<void> start();
    // Walks the tree: the map then holds exactly the cgroups that exist.
    void rescan();

    [[nodiscard]] const std::string& root() const { return root_; }
    struct Group {
        std::string path;  // below root; "/" is root itself
        std::uint64_t rules = 0;
        bool enrolled = false;
    };
    // By cgroup id.
    [[nodiscard]] const std::map<std::uint64_t, Group>& groups() const { return groups_; }
    // The processes of every cgroup that some rule matches.
    [[nodiscard]] std::vector<int> enrolled_pids() const;

 private:
    void listen();

    std::string root_, own_;
    const Policy& policy_;
    bpf::Map<std::uint64_t, smc_cgroup> map_;
    std::function<void()> on_change_;
    asio::posix::stream_descriptor inotify_;
    std::map<std::uint64_t, Group> groups_;
};

// The agent's own place: a cgroup for its CLC sockets. If the process sits in the root of the tree, it
// moves to ROOT/smc-agent and back again at the end.
class OwnCgroup {
 public:
    static Result<OwnCgroup> enter(const std::string& mount, const std::string& root);
    OwnCgroup(OwnCgroup&& other) noexcept = default;
    OwnCgroup& operator=(OwnCgroup&&) = delete;
    OwnCgroup(const OwnCgroup&) = delete;
    OwnCgroup& operator=(const OwnCgroup&) = delete;
    ~OwnCgroup();

    [[nodiscard]] const std::string& path() const { return path_; }

 private:
    OwnCgroup(std::string path, std::string came_from) : path_(std::move(path)), came_from_(std::move(came_from)) {}
    std::string path_;
    std::string came_from_;  // empty: did not move
};

}  // namespace smc
