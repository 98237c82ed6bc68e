// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The network namespaces that the agent has opened: those with a process of an enrolled cgroup, or a connection.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "agent/log/log.h"
#include "agent/loop/background.h"
#include "agent/loop/fd_watch.h"
#include "agent/loop/standstill.h"
#include "agent/netns/cgroups.h"
#include "agent/netns/namespace.h"

namespace smc {

// Finds the network namespaces that the processes of cgroups are in.
class Sightings {
 public:
    struct Process {
        int pid = 0;
        std::string cgroup;  // directory
    };
    // The namespaces by inode, each with one of its processes. nullopt: descriptors or memory ran out. If not
    // `thorough`, a process is taken to be still where it was seen within the last kGoodFor looks.
    using Present = std::map<std::uint64_t, Process>;
    std::optional<Present> look(const std::vector<std::string>& cgroups, bool thorough);

 private:
    static constexpr unsigned kGoodFor = 16;  // in looks
    struct Seen {
        std::uint64_t inode;
        unsigned look;
    };
    std::unordered_map<int, Seen> seen_;  // by process ID
    unsigned looks_ = 0;
};

class Namespaces {
 public:
    // A namespace may have fresh listeners: it is new, or a listener could not be opened or served before.
    using OnFresh = std::function<void(const std::shared_ptr<Namespace>&)>;
    // Whether a connection of the agent lives in the namespace with this inode.
    using InUse = std::function<bool(std::uint64_t)>;

    // `cgroup_share`: how many namespaces the processes of one cgroup may have served, in percent of SMC_MAX_NETNS.
    Namespaces(asio::io_context& io, const Times& times, bpf::Programs& programs, const Cgroups& cgroups,
               unsigned cgroup_share, const bpf::Hooks::Options& hooks, OnFresh on_fresh, InUse in_use);
    ~Namespaces() { close_all(); }
    Namespaces(const Namespaces&) = delete;
    Namespaces& operator=(const Namespaces&) = delete;

    // Opens the namespaces that exist now.
    void start();
    // Looks into /proc on another thread; then opens new namespaces. Namespaces that had no process for two looks in a
    // row get no new connections, and are closed some seconds after the last connection there.
    void rescan();
    // Runs `io` until the known namespaces are prepared, but no longer than Times::prepare.
    void settle();
    // Schedules a thorough rescan: a program uses a socket in an unknown namespace, or cgroups have changed. Several
    // calls become one. As users may cause this all the time, the agent rests nine times as long as the last look took,
    // but no longer than a second.
    void rescan_soon();

    // A listener has lost its callback flag (smc_flag.h of bpf/): it is replaced when the hairpins are tried next.
    void callback_taken(std::uint32_t slot, bool v6);

    [[nodiscard]] std::shared_ptr<Namespace> by_cookie(std::uint64_t cookie) const;
    [[nodiscard]] std::shared_ptr<Namespace> by_inode(std::uint64_t inode) const;
    [[nodiscard]] std::vector<std::shared_ptr<Namespace>> all() const;
    // Another agent serves from here on: stops listening everywhere, and opens no further namespace. Open namespaces
    // stay until they have neither a process nor a connection, or this object is destroyed. On return the hooking
    // thread has no work left.
    void withdraw();
    // On return no program is attached any more.
    void close_all();

 private:
    struct Open {
        std::shared_ptr<Namespace> netns;
        std::unique_ptr<loop::FdWatch> link_events;
        std::string cgroup;  // of the process by which it was found
        unsigned unseen = 0;
        TimePoint used_at{};  // when a connection was last seen to live there
    };

    void rescan_in(std::chrono::steady_clock::duration time);
    // False: it is not open.
    bool open(std::uint64_t inode, const Sightings::Process& process, std::uint32_t slot);
    void watch_links(std::uint64_t inode);
    void schedule_tick();
    void take(const Sightings::Present& present, unsigned most);
    void close_those_without(const Sightings::Present& present);
    [[nodiscard]] std::uint32_t free_slot() const;
    // How many namespaces are served for the processes of each cgroup.
    using Served = std::unordered_map<std::string, std::size_t>;
    // Whether this cgroup has used up its share of namespaces (limits.cgroup_percent). Logged when that begins.
    [[nodiscard]] bool has_used_share(const std::string& cgroup, const Served& served);
    // Logs an event that any user can cause by creating namespaces; repetitions are limited.
    void tell(const char* what, std::uint64_t inode, const std::string& more);

    asio::io_context& io_;
    const Times& times_;
    asio::thread_pool hooking_{1};
    std::atomic<bool> hurry_{false};  // the hooking thread puts off what can wait
    loop::LockHelper locks_;
    Namespace::Parts parts_;
    const Cgroups& cgroups_;
    std::size_t cgroup_most_;
    std::set<std::string> crowded_;  // cgroups that have their share
    LogLimiter limiter_;
    OnFresh on_fresh_;
    InUse in_use_;
    std::map<std::uint64_t, Open> open_;        // by inode
    std::map<std::uint64_t, unsigned> failed_;  // inode -> attempts
    asio::steady_timer soon_;
    asio::steady_timer tick_;
    bool soon_pending_ = false;
    bool full_ = false;
    bool withdrawn_ = false;
    unsigned ticks_ = 0;
    loop::Every probes_;
    bool looking_ = false, again_ = false;
    bool thorough_ = false;  // for the next look
    Sightings sightings_;    // used on the thread of look_
    TimePoint looked_at_{};
    std::chrono::steady_clock::duration last_look_{};
    std::optional<loop::Background> look_;  // nothing: close_all() was called
};

}  // namespace smc
