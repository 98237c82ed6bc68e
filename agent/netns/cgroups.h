// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Follows the cgroups below one directory: which ones exist, which rules match them, and when they change.
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

// The mount point of cgroup v2; an Error if it is not mounted.
Result<std::string> find_cgroup_mount();
// In a container that shares the node's PID namespace (hostPID), makes cgroup paths in /proc the node's from here on.
// Call it before any thread is started.
void leave_own_cgroup_namespace();
// An Error if `path` is no directory of a cgroup v2.
Result<void> check_cgroup(const std::string& path);

class Cgroups {
 public:
    // The pod that a cgroup belongs to. `path`: the leading part whose directories uid 0 owns; kubelet creates pods'
    // cgroups, so what other users have created below does not count.
    struct PodAt {
        const Pod* pod = nullptr;  // nullptr: no pod, or a pod that the agent does not know
        bool is_pod = false;       // the path is that of a pod, known or not
        bool is_asked = false;     // an API server is asked for pods
    };
    using PodOf = std::function<PodAt(const std::string& path)>;

    // `on_change`: cgroups may have been created, removed, populated or emptied, or other rules match them. `own` is
    // the agent's own cgroup, which is never enrolled.
    Cgroups(asio::io_context& io, std::string root, std::string own, const Policy& policy,
            bpf::Map<std::uint64_t, smc_cgroup> map, PodOf pod_of, std::function<void()> on_change);

    Result<void> start();
    // Walks the tree soon, on another thread; the more a walk costs, the longer the pause before the next one.
    // Afterwards the map holds the cgroups that exist. If there are more than fit, they share its entries
    // (share_entries()). A walk that cannot be completed changes nothing and is repeated.
    void rescan_soon();

    // The known pods have changed. True: the rules now allow some cgroup less than before.
    bool reconsider();
    // Whether the rules that match this cgroup now allow a member of the bypass less than `rules` did. False if the
    // cgroup is gone.
    [[nodiscard]] bool may_less(std::uint64_t id, std::uint64_t rules) const;

    [[nodiscard]] const std::string& root() const { return root_; }
    // The agent's own.
    [[nodiscard]] const std::string& own() const { return own_; }
    struct Group {
        std::string path;               // relative to root; "/" is root itself
        std::size_t owned_by_uid0 = 0;  // length of the leading part of the path whose directories uid 0 owns
        std::uint64_t rules = 0;
        bool enrolled = false;
        std::string pod{};     // "namespace/name"; empty: none
        bool limited = false;  // the pod's bandwidth is limited
    };
    // By cgroup ID.
    [[nodiscard]] const std::map<std::uint64_t, Group>& groups() const { return groups_; }
    // The directories of the enrolled cgroups.
    [[nodiscard]] std::vector<std::string> enrolled() const;
    // How many cgroups do not fit into the map.
    [[nodiscard]] std::size_t left_out() const { return left_out_; }

 private:
    void listen();
    void watch(const std::string& path);
    struct Walked {
        std::optional<Error> failed;  // if set, the rest is empty
        std::vector<CgroupFound> kept;
        std::size_t left_out = 0;
        std::chrono::steady_clock::duration took{};
    };
    static Walked walk(const std::string& root, const std::vector<std::uint64_t>& known);
    void take(Walked walked);
    void add_some();
    void add(const CgroupFound& one);
    [[nodiscard]] Group judged(const std::string& below, std::size_t owned_by_uid0) const;
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
    std::deque<CgroupFound> fresh_;  // new cgroups that still have to be added
    asio::steady_timer soon_, more_;
    bool soon_pending_ = false;
    bool walks_ = false, again_ = false;  // a walk is under way; it may have missed changes
    bool has_all_watches_ = true;
    bool is_cut_short_ = false;  // the last walk, by a lack of descriptors or memory
    std::chrono::steady_clock::duration last_walk_{};
    loop::Background background_;  // last member, so destroyed first
};

// A cgroup for the agent's CLC sockets. If the process is in the root of the cgroup tree, it moves to ROOT/smc-agent,
// and back again at the end.
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
    std::string came_from_;  // empty: the process did not move
};

}  // namespace smc
