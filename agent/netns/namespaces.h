// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which network namespaces are served: those in which a process of an enrolled cgroup lives.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "agent/loop/background.h"
#include "agent/loop/fd_watch.h"
#include "agent/loop/standstill.h"
#include "agent/netns/cgroups.h"
#include "agent/netns/namespace.h"

namespace smc {

// In which network namespaces the processes of cgroups live.
class Sightings {
 public:
    // By inode: those that there are, and a process in each. Nothing: they could not all be asked. `thorough`: else
    // what was seen of a process lately is taken for true.
    using Present = std::map<std::uint64_t, int>;
    std::optional<Present> look(const std::vector<std::string>& cgroups, bool thorough);

 private:
    static constexpr unsigned kGoodFor = 16;  // looks
    struct Seen {
        std::uint64_t inode;
        unsigned look;
    };
    std::unordered_map<int, Seen> seen_;  // by process
    unsigned looks_ = 0;
};

class Namespaces {
 public:
    // A namespace may have fresh listeners: it is new, or one could not be opened or served before.
    using OnFresh = std::function<void(const std::shared_ptr<Namespace>&)>;

    Namespaces(asio::io_context& io, const Times& times, bpf::Programs& programs, const Cgroups& cgroups,
               bpf::Hooks::Tc tc, OnFresh on_fresh);
    ~Namespaces() { close_all(); }
    Namespaces(const Namespaces&) = delete;
    Namespaces& operator=(const Namespaces&) = delete;

    // Opens those that are there.
    void start();
    // Looks into /proc on another thread: opens what is new, closes what has had no process for two looks in a row.
    void rescan();
    // Runs what `io` has until the namespaces that are known are prepared; not for ever.
    void settle();
    // A rescan soon; several wishes become one.
    void rescan_soon();

    [[nodiscard]] std::shared_ptr<Namespace> by_cookie(std::uint64_t cookie) const;
    [[nodiscard]] std::shared_ptr<Namespace> by_inode(std::uint64_t inode) const;
    [[nodiscard]] std::vector<std::shared_ptr<Namespace>> all() const;
    [[nodiscard]] std::vector<UniqueFd> handles() const;
    // Another agent serves from here on: no namespace is opened any more, and none is listened in. Those that are there
    // stay until they are gone, or this is. When it returns, nobody works on them.
    void withdraw();
    // When it returns, no program is attached any more.
    void close_all();

 private:
    struct Served {
        std::shared_ptr<Namespace> netns;
        std::unique_ptr<loop::FdWatch> link_events;
        unsigned unseen = 0;
    };

    void open(std::uint64_t inode, int pid, std::uint32_t slot);
    void watch_links(std::uint64_t inode);
    void look_again_later();
    void take(const std::map<std::uint64_t, int>& present);
    [[nodiscard]] std::uint32_t free_slot() const;

    asio::io_context& io_;
    const Times& times_;
    asio::thread_pool hooking_{1};
    std::atomic<bool> hurry_{false};  // of that thread
    Namespace::Parts parts_;
    const Cgroups& cgroups_;
    OnFresh on_fresh_;
    std::map<std::uint64_t, Served> served_;    // by inode
    std::map<std::uint64_t, unsigned> failed_;  // inode -> attempts
    asio::steady_timer soon_;
    asio::steady_timer regular_;
    bool soon_pending_ = false;
    bool full_ = false;
    bool withdrawn_ = false;
    unsigned looks_ = 0;
    loop::Every probes_;
    bool looking_ = false, again_ = false;
    bool thorough_ = false;  // the next look
    Sightings sightings_;    // of that thread
    TimePoint looked_at_{};
    std::chrono::steady_clock::duration last_look_{};
    std::optional<loop::Background> look_;  // nothing: it is closed
};

}  // namespace smc
