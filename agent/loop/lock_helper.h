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
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "agent/loop/deadline.h"
#include "agent/loop/fd_watch.h"
#include "os/result.h"
#include "os/sock_diag.h"
#include "os/unique_fd.h"
#include "smc/time.h"

namespace smc::loop {

class LockHelper {
 public:
    // Called on the control thread when the job is done; `error` is 0 or an errno value.
    using Done = std::function<void(int error)>;

    explicit LockHelper(asio::io_context& io) : io_(io), restart_(io, [this] { give(); }) {}
    // Sends the process the waiting jobs that its socket takes, and returns: the process ends after its last job, and
    // only a service manager waits for that. `done` is not called any more.
    ~LockHelper();
    LockHelper(const LockHelper&) = delete;
    LockHelper& operator=(const LockHelper&) = delete;

    // At most kAtOnce jobs run at the same time; kMost jobs may run or wait.
    static constexpr std::size_t kAtOnce = 8, kMost = 1024;
    // Reads `fd`, a BPF iterator, to its end. False: there are kMost jobs, or no free descriptors, and `done` is not
    // called. If the process does not start, or ends before the job is done, it is started again after some seconds.
    [[nodiscard]] bool read_to_end(UniqueFd fd, Done done);
    // As SockDiag::abort(). `diag` decides about the namespace. False: as above.
    [[nodiscard]] bool end_socket(const SockDiag& diag, const SockDiag::Socket& which, Done done);

 private:
    struct Job {
        std::uint64_t number = 0;
        UniqueFd fd;  // an iterator, or a socket of sock_diag
        std::optional<SockDiag::Socket> ends;
        Done done;
    };
    [[nodiscard]] bool add(Job job);
    void give();
    [[nodiscard]] bool give(const Job& job) const;
    Result<void> start();
    void listen();
    void hear();
    void end_process();
    void reap();

    asio::io_context& io_;
    std::optional<TimePoint> started_;  // when a start was tried last
    Deadline restart_;
    pid_t process_ = 0;
    UniqueFd process_fd_;
    std::vector<pid_t> unreaped_;          // processes that have ended, or will
    std::optional<loop::FdWatch> socket_;  // empty: there is no process
    std::uint64_t last_number_ = 0;
    std::map<std::uint64_t, Job> given_;  // to the process
    std::deque<Job> waiting_;
};

// The process itself: works off the jobs that come by `socket`, until the agent has gone. Returns its exit code.
int serve_lock_helper(int socket);

}  // namespace smc::loop
