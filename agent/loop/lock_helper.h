// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A process that waits for the locks of applications' sockets in the agent's place. A program may hold the lock of its
// socket for any time, in a system call whose page FUSE or userfaultfd has yet to bring, and not even SIGKILL ends the
// wait of another thread for it. An agent with such a thread could neither go on nor end: connections of a dead agent
// would hang, and no other agent could take its place.
#pragma once

#include <sys/types.h>

#include <asio/io_context.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "agent/loop/fd_watch.h"
#include "os/result.h"
#include "os/sock_diag.h"
#include "os/unique_fd.h"
#include "smc/time.h"

namespace smc::loop {

class LockHelper {
 public:
    // 0, or an errno value; ECANCELED: the process has ended before.
    using Done = std::function<void(int error)>;

    explicit LockHelper(asio::io_context& io) : io_(io) {}
    // The process ends, at once or with its last wait for a lock. This object does not wait for it, but a service
    // manager may. `done` of jobs under way is not called.
    ~LockHelper();
    LockHelper(const LockHelper&) = delete;
    LockHelper& operator=(const LockHelper&) = delete;

    // Jobs that are done at the same time; further ones wait for their turn. `done` is called on the control thread. An
    // Error: it is not called, because the process could not be started or be given the job. To be called in the
    // agent's own network namespace, which the process inherits.
    static constexpr std::size_t kAtOnce = 8;
    // Reads `fd`, an iterator of BPF, to its end.
    Result<void> read_to_end(const UniqueFd& fd, Done done);
    // As SockDiag::abort(). `diag` decides about the namespace.
    Result<void> end_socket(const SockDiag& diag, const SockDiag::Socket& which, Done done);

 private:
    Result<void> start();
    void listen();
    void hear();
    void end_process();

    asio::io_context& io_;
    std::optional<TimePoint> started_;  // the last process
    pid_t process_ = 0;
    UniqueFd process_fd_;
    std::optional<loop::FdWatch> socket_;  // empty: there is no process
    std::uint64_t last_job_ = 0;
    std::map<std::uint64_t, Done> under_way_;
};

// The process itself: works off the jobs that come by `socket`, until the agent has gone. Returns its exit code.
int serve_lock_helper(int socket);

}  // namespace smc::loop
