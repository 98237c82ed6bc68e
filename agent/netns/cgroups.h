// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Follows the cgroups below one directory: which exist, which rules match them, when they change.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/loop/background.h"
#include "agent/netns/cgroup_tree.h"
#include "agent/policy/policy.h"
#include "agent/steer/map.h"
#include "bpf/abi.h"

namespace smc {

// Where cgroup v2 is mounted; an Error if it is not.
Result<std::string> find_cgroup_mount();
// In a container with the node's processes (hostPID) paths in /proc are the node's from here on. Before any thread.
void leave_own_cgroup_namespace();
// An Error if it is no directory of a cgroup v2.
Result<void> check_cgroup(const std::string& path);

class Cgroups {
 public:
    // Whose pod a cgroup is, by its path.
    struct PodAt {
        const Pod* pod = nullptr;  // nullptr: nobody's who is known
        bool is_somebodys = false;
    };
    using PodOf = std::function<PodAt(const std::string& path)>;

    // on_change: a cgroup appeared, vanished, or became populated or empty.
    // `own` is the agent's: it is never enrolled.
    Cgroups(asio::io_context& io, std::string root, std::string own, const Policy& policy,
            bpf::Map<std::uint64_t, smc_cgroup> map, PodOf pod_of, std::function<void()> on_change);

    Result<void> start();
    // Walks the tree soon, on another thread, and the rarer the more that costs: the map then holds the cgroups that
    // exist. Where there are more than it can hold, they share it (share_entries()). A walk that cannot be finished
    // changes nothing, and is tried again.
    void rescan_soon();

    // Pods are others now. True: somebody may do less than before.
    bool reconsider();
    // The same of one, for which these rules were: false, if it is gone.
    [[nodiscard]] bool may_less(std::uint64_t id, std::uint64_t rules) const;

    [[nodiscard]] const std::string& root() const { return root_; }
    struct Group {
        std::string path;  // below root; "/" is root itself
        std::uint64_t rules = 0;
        bool enrolled = false;
        std::string pod{};     // "namespace/name"; empty: none
        bool limited = false;  // that pod has a bandwidth of its own
    };
    // By cgroup id.
    [[nodiscard]] const std::map<std::uint64_t, Group>& groups() const { return groups_; }
    // The directories of those that some rule matches.
    [[nodiscard]] std::vector<std::string> enrolled() const;
    // More than the map can hold: how many were left out of it.
    [[nodiscard]] std::size_t left_out() const { return left_out_; }

 private:
    void listen();
    void watch(const std::string& path);
    struct Walked {
        std::optional<Error> failed;  // else:
        std::vector<CgroupFound> kept;
        std::size_t left_out = 0;
        std::chrono::steady_clock::duration took{};
    };
    static Walked walk(const std::string& root, const std::vector<std::uint64_t>& known);
    void take(Walked walked);
    void add_some();
    void add(const CgroupFound& one);
    [[nodiscard]] Group judged(const std::string& below) const;
    [[nodiscard]] bool is_less(std::uint64_t before, std::uint64_t now) const;
    Result<void> publish(std::uint64_t id, const Group& group) const;

    std::string root_, own_;
    const Policy& policy_;
    bpf::Map<std::uint64_t, smc_cgroup> map_;
    PodOf pod_of_;
    std::function<void()> on_change_;
    asio::posix::stream_descriptor inotify_;
    std::map<std::uint64_t, Group> groups_;
    std::size_t left_out_ = 0;
    std::deque<CgroupFound> fresh_;  // that are to be added
    asio::steady_timer soon_, more_;
    bool soon_pending_ = false;
    bool is_cut_short_ = false;  // the last walk, for want of descriptors or memory
    std::chrono::steady_clock::duration last_walk_{};
    loop::Background background_;  // before anything else goes
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
