// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/loop/lock_helper.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include "agent/log/log.h"
#include "os/clock.h"
#include "os/read_to_end.h"

namespace smc::loop {

namespace {

constexpr auto kRest = std::chrono::seconds(10);  // between two starts of the process

// To the process, with a descriptor: an iterator, or a socket of sock_diag.
struct Job {
    std::uint64_t number = 0;
    bool ends_socket = false;
    SockDiag::Socket socket;
};
static_assert(std::is_trivially_copyable_v<Job>);

// From the process.
struct Answer {
    std::uint64_t number = 0;
    int error = 0;
};

bool send_job(int to, Job job, int fd) {
    iovec part{&job, sizeof job};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof fd)> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    return ::sendmsg(to, &message, MSG_NOSIGNAL) == sizeof job;
}

// False: the agent has gone.
bool receive_job(int from, Job& job, UniqueFd& fd) {
    iovec part{&job, sizeof job};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    ssize_t got = -1;
    do {
        got = ::recvmsg(from, &message, MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (const cmsghdr* rights = CMSG_FIRSTHDR(&message); rights != nullptr && rights->cmsg_type == SCM_RIGHTS) {
        int number = -1;
        std::memcpy(&number, CMSG_DATA(rights), sizeof number);
        fd.reset(number);
    }
    return got == sizeof job;
}

int work_off(const Job& job, UniqueFd fd) {
    if (!fd) {
        return EMFILE;
    }
    if (!job.ends_socket) {
        return os::read_to_end(fd.get());
    }
    const auto diag = SockDiag::of(std::move(fd));
    const auto done = diag ? diag->abort(job.socket) : Result<void>(diag.error());
    return done ? 0 : done.error().code;
}

void serve(int socket) {
    for (;;) {
        Job job;
        UniqueFd fd;
        if (!receive_job(socket, job, fd)) {
            return;
        }
        const Answer answer{job.number, work_off(job, std::move(fd))};
        ::send(socket, &answer, sizeof answer, MSG_NOSIGNAL);
    }
}

}  // namespace

int serve_lock_helper(int socket) {
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {  // they may be sent to all processes of the agent
        ::signal(number, SIG_IGN);
    }
    ::prctl(PR_SET_NAME, "smc-lock-helper");
    // Standard error is closed, too: its reader may wait for the last writer.
    if (socket > 0) {
        ::syscall(SYS_close_range, 0, socket - 1, 0);
    }
    ::syscall(SYS_close_range, socket + 1, ~0U, 0);
    try {
        for (std::size_t i = 1; i < LockHelper::kAtOnce; i++) {
            std::thread(serve, socket).detach();
        }
    } catch (const std::system_error&) {
        // no more threads are allowed: fewer jobs are done at the same time
    }
    serve(socket);
    ::_exit(0);  // other threads may wait for locks
}

LockHelper::~LockHelper() {
    end_process();
}

Result<void> LockHelper::start() {
    if (started_ && os::now() - *started_ < kRest) {
        return Error{EAGAIN, "starting a process that waits for locks (the last one ended at once)"};
    }
    started_ = os::now();
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        return last_error("creating a pair of sockets");
    }
    UniqueFd own(ends[0]);
    const UniqueFd theirs(ends[1]);
    ::fcntl(own.get(), F_SETFL, O_NONBLOCK);
    std::string name = "smc-agent", option = "--lock-helper-fd", number = std::to_string(theirs.get());
    std::array<char*, 4> arguments{name.data(), option.data(), number.data(), nullptr};
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), theirs.get());  // clears FD_CLOEXEC
    // this program, also if its file has been replaced
    const int failed = ::posix_spawn(&process_, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) {
        return Error{failed, "starting a process that waits for locks"};
    }
    process_fd_ = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, process_, 0)));
    socket_.emplace(io_, std::move(own));
    if (!process_fd_ || !socket_->watch()) {
        auto error = last_error("watching a process that waits for locks");
        end_process();
        return error;
    }
    listen();
    return {};
}

Result<void> LockHelper::read_to_end(const UniqueFd& fd, Done done) {
    if (auto started = socket_ ? Result<void>() : start(); !started) {
        return started;
    }
    if (!send_job(socket_->fd(), {.number = last_job_ + 1, .ends_socket = false, .socket = {}}, fd.get())) {
        return last_error("giving a job to the process that waits for locks");
    }
    under_way_.emplace(++last_job_, std::move(done));
    return {};
}

Result<void> LockHelper::end_socket(const SockDiag& diag, const SockDiag::Socket& which, Done done) {
    if (auto started = socket_ ? Result<void>() : start(); !started) {
        return started;
    }
    if (!send_job(socket_->fd(), {.number = last_job_ + 1, .ends_socket = true, .socket = which}, diag.fd())) {
        return last_error("giving a job to the process that waits for locks");
    }
    under_way_.emplace(++last_job_, std::move(done));
    return {};
}

void LockHelper::listen() {
    socket_->when_readable([this] { hear(); });
}

void LockHelper::hear() {
    Answer answer;
    const ssize_t got = ::recv(socket_->fd(), &answer, sizeof answer, 0);
    if (got == sizeof answer) {
        listen();
        if (auto job = under_way_.extract(answer.number)) {
            job.mapped()(answer.error);
        }
        return;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return listen();
    }
    log()->warn("the process that waits for locks has ended; another one is started when it is needed");
    end_process();
    for (const auto& [number, done] : std::exchange(under_way_, {})) {
        done(ECANCELED);
    }
}

// Closes the socket, which ends the process, and has it reaped when it has ended.
void LockHelper::end_process() {
    socket_.reset();
    const pid_t process = std::exchange(process_, 0);
    if (!process_fd_) {
        return;
    }
    auto ending = std::make_shared<loop::FdWatch>(io_, std::move(process_fd_));
    ending->when_readable([ending, process] { ::waitpid(process, nullptr, WNOHANG); });
}

}  // namespace smc::loop
