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
#include <vector>

#include "agent/log/log.h"
#include "os/clock.h"
#include "os/read_to_end.h"

namespace smc::loop {

namespace {

constexpr auto kRest = std::chrono::seconds(10);  // between two starts of the process

// To the process, with a descriptor: an iterator, or a socket of sock_diag.
struct Request {
    std::uint64_t number = 0;
    bool ends_socket = false;
    SockDiag::Socket socket;
};
static_assert(std::is_trivially_copyable_v<Request>);

// From the process.
struct Answer {
    std::uint64_t number = 0;
    int error = 0;
};

bool send_request(int to, Request request, int fd) {
    iovec part{&request, sizeof request};
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
    return ::sendmsg(to, &message, MSG_NOSIGNAL) == sizeof request;
}

// False: the agent has gone. ECONNRESET: the agent has not read all answers, and requests may still follow.
bool receive_request(int from, Request& request, UniqueFd& fd) {
    iovec part{&request, sizeof request};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    ssize_t got = -1;
    do {
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        got = ::recvmsg(from, &message, MSG_CMSG_CLOEXEC);
    } while (got < 0 && (errno == EINTR || errno == ECONNRESET));
    if (const cmsghdr* rights = CMSG_FIRSTHDR(&message); rights != nullptr && rights->cmsg_type == SCM_RIGHTS) {
        int number = -1;
        std::memcpy(&number, CMSG_DATA(rights), sizeof number);
        fd.reset(number);
    }
    return got == sizeof request;
}

int work_off(const Request& request, UniqueFd fd) {
    if (!fd) {
        return EMFILE;
    }
    if (!request.ends_socket) {
        return os::read_to_end(fd.get());
    }
    const auto diag = SockDiag::of(std::move(fd));
    const auto done = diag ? diag->abort(request.socket) : Result<void>(diag.error());
    return done ? 0 : done.error().code;
}

void serve(int socket) {
    for (;;) {
        Request request;
        UniqueFd fd;
        if (!receive_request(socket, request, fd)) {
            return;
        }
        const Answer answer{request.number, work_off(request, std::move(fd))};
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
    std::vector<std::jthread> others;
    try {
        while (others.size() + 1 < LockHelper::kAtOnce) {
            others.emplace_back(serve, socket);
        }
    } catch (const std::system_error&) {
        // no more threads are allowed: fewer jobs are done at the same time
    }
    serve(socket);
    return 0;
}

LockHelper::~LockHelper() {
    while (socket_ && !waiting_.empty() && give(waiting_.front())) {
        waiting_.pop_front();
    }
    end_process();
}

bool LockHelper::read_to_end(UniqueFd fd, Done done) {
    return add({.number = ++last_number_, .fd = std::move(fd), .ends = std::nullopt, .done = std::move(done)});
}

bool LockHelper::end_socket(const SockDiag& diag, const SockDiag::Socket& which, Done done) {
    return add({.number = ++last_number_, .fd = duplicate(diag.fd()), .ends = which, .done = std::move(done)});
}

bool LockHelper::add(Job job) {
    if (!job.fd || given_.size() + waiting_.size() >= kMost) {
        return false;
    }
    waiting_.push_back(std::move(job));
    give();
    return true;
}

// Gives the process as many jobs as it has threads, so its socket is never full.
void LockHelper::give() {
    if (!socket_ && !waiting_.empty()) {
        if (started_ && os::now() - *started_ < kRest) {
            return restart_.set(*started_ + kRest);
        }
        started_ = os::now();
        if (const auto started = start(); !started) {
            log()->limited(
                LogLevel::kWarn,
                "the helper process for locks of sockets does not start, and is tried again in 10 s; meanwhile no "
                "socket joins the bypass or is ended: {}",
                started.error().text());
            return restart_.set(*started_ + kRest);
        }
    }
    while (!waiting_.empty() && given_.size() < kAtOnce && give(waiting_.front())) {
        given_.emplace(waiting_.front().number, std::move(waiting_.front()));
        waiting_.pop_front();
    }
    if (!waiting_.empty() && given_.empty()) {
        restart_.set(os::now() + kRest);  // the kernel refused the message for now, and no answer will come
    }
}

bool LockHelper::give(const Job& job) const {
    return send_request(
        socket_->fd(),
        {.number = job.number, .ends_socket = job.ends.has_value(), .socket = job.ends.value_or(SockDiag::Socket{})},
        job.fd.get());
}

Result<void> LockHelper::start() {
    reap();
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

void LockHelper::listen() {
    socket_->when_readable([this] { hear(); });
}

void LockHelper::hear() {
    Answer answer;
    const ssize_t got = ::recv(socket_->fd(), &answer, sizeof answer, 0);
    if (got == sizeof answer) {
        listen();
        if (auto job = given_.extract(answer.number)) {
            give();
            job.mapped().done(answer.error);
        }
        return;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNRESET)) {
        return listen();
    }
    log()->warn("the helper process for locks of sockets has ended; a new one does its remaining jobs");
    end_process();
    for (auto job = given_.rbegin(); job != given_.rend(); ++job) {
        waiting_.push_front(std::move(job->second));
    }
    given_.clear();
    give();
}

// Closes the socket, which ends the process, and has it reaped when it has ended.
void LockHelper::end_process() {
    socket_.reset();
    const pid_t process = std::exchange(process_, 0);
    if (process == 0) {
        return;
    }
    if (!process_fd_) {
        unreaped_.push_back(process);
        return;
    }
    auto ending = std::make_shared<loop::FdWatch>(io_, std::move(process_fd_));
    if (!ending->watch()) {
        unreaped_.push_back(process);
        return;
    }
    ending->when_readable([ending, process] { ::waitpid(process, nullptr, WNOHANG); });
}

void LockHelper::reap() {
    std::erase_if(unreaped_, [](pid_t process) { return ::waitpid(process, nullptr, WNOHANG) == process; });
}

}  // namespace smc::loop
