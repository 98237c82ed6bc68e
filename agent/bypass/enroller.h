// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A process of its own that puts proven sockets into map smc_members. The iterator smc_bypass_enrol waits for the lock
// of each socket that it visits. A program may hold that lock for any time, in a send() whose page FUSE or userfaultfd
// has yet to bring, and not even SIGKILL ends such a wait. A process with a thread that waits so cannot end, and its
// descriptors stay open: connections of a dead agent would hang, and no other agent could take its place.
#pragma once

#include <sys/types.h>

#include <asio/io_context.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "agent/loop/fd_watch.h"
#include "os/result.h"
#include "os/unique_fd.h"
#include "smc/time.h"

namespace smc::bypass {

class Enroller {
 public:
    // `enrolled` is called on the control thread whenever a namespace's sockets have been visited.
    Enroller(asio::io_context& io, std::function<void()> enrolled) : io_(io), enrolled_(std::move(enrolled)) {}
    // The process ends, at once or with the last wait for a lock. Nothing waits for it.
    ~Enroller();
    Enroller(const Enroller&) = delete;
    Enroller& operator=(const Enroller&) = delete;

    // Namespaces that are visited at the same time. Further ones wait.
    static constexpr std::size_t kAtOnce = 4;
    // Whether enrol() may be called for the network namespace with this cookie.
    [[nodiscard]] bool is_free_for(std::uint64_t netns) const;
    // Has the process read `iterator` (Bypass::iterator()) to its end. Starts the process if there is none.
    Result<void> enrol(std::uint64_t netns, UniqueFd iterator);

    // Cookies of the namespaces that have been visited for a second or more: a program holds a socket's lock there.
    [[nodiscard]] std::set<std::uint64_t> held_up() const;

 private:
    Result<void> start();
    void listen();
    void hear();
    void reap();

    asio::io_context& io_;
    std::function<void()> enrolled_;
    pid_t process_ = 0;
    UniqueFd process_fd_;
    std::optional<TimePoint> started_;              // the last process
    std::optional<loop::FdWatch> socket_;           // empty: there is no process
    std::map<std::uint64_t, TimePoint> under_way_;  // by cookies of namespaces: since when
};

// Visits the sockets that the iterator stands for. May wait for a socket's lock for any time.
void read_to_end(int iterator);
// The process: reads the iterators that come by `socket`, up to Enroller::kAtOnce at the same time, until the agent has
// gone. Returns its exit code.
int serve_enroller(int socket);

}  // namespace smc::bypass
