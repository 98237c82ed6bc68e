// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The rounds of the bypass: each runs smc_bypass_step, on the control thread. Another process enrols sockets in
// namespaces that have proven ones; another thread looks at connection tracking, and repeats the probe.
#pragma once

#include <asio/io_context.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "agent/bypass/bypass.h"
#include "agent/bypass/conntrack_watch.h"
#include "agent/bypass/probe.h"
#include "agent/loop/background.h"
#include "agent/loop/deadline.h"
#include "agent/loop/lock_helper.h"
#include "agent/netns/namespaces.h"
#include "smc/times.h"

namespace smc::bypass {

class Rounds {
 public:
    Rounds(asio::io_context& io, Bypass& bypass, const Namespaces& namespaces)
        : bypass_(bypass),
          namespaces_(namespaces),
          next_(io, [this] { tick(); }),
          next_trial_(io, [this] { try_now(); }),
          locks_(io),
          thread_(io) {}

    // Runs a round four times a second from here on (SMC_STREAM_BYTES in bpf/bypass_step.h relies on that).
    void start() { tick(); }

    // Repeats the probe from time to time, after it has found an obstacle that may not last. While the probe runs,
    // rounds do nothing. `on_verdict` is called for each probe; `last`: there will be no other.
    using OnVerdict = std::function<void(const Verdict& verdict, bool last)>;
    void try_again(const Times& times, OnVerdict on_verdict);

    // Rounds since the start of this agent.
    [[nodiscard]] std::uint64_t count() const { return rounds_; }
    // Network namespaces in which no socket becomes a member, because a program holds the lock of a socket.
    [[nodiscard]] std::size_t held_up() const;

 private:
    struct Trials {
        std::chrono::milliseconds pause, moment;
        OnVerdict on_verdict;
        unsigned left;
    };
    // A walk over the sockets of a network namespace, in another process.
    struct Visit {
        TimePoint since;
        std::uint64_t inode = 0;
        bool told = false;  // that it takes long
    };
    void tick();
    void round();
    void enrol(std::uint64_t netns);
    void enrolled(std::uint64_t netns, int error);
    void tell_of_waits();
    void try_now();
    void watch_conntrack();
    void look(std::vector<Bypass::Listed> members);
    template <class Work, class Then>
    bool run_on_thread(Work work, Then then);

    Bypass& bypass_;
    const Namespaces& namespaces_;
    ConntrackWatch conntrack_;  // used on the other thread
    std::uint64_t rounds_ = 0;
    std::map<std::uint64_t, Visit> visits_;  // under way, by cookies of network namespaces
    bool busy_ = false, trying_ = false, all_held_up_ = false;
    std::optional<Trials> trials_;
    loop::Deadline next_, next_trial_;
    loop::LockHelper locks_;
    loop::Background thread_;  // destroyed first: its work uses the others
};

}  // namespace smc::bypass
