// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/bypass/enroller.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "agent/log/log.h"
#include "os/clock.h"

namespace smc::bypass {

namespace {

constexpr auto kRest = std::chrono::seconds(10);  // between two starts of the process
constexpr auto kUsual = std::chrono::seconds(1);  // a visit takes milliseconds

// One message, in both directions: the cookie of a network namespace. To the process, its iterator comes with it.
class Message {
 public:
    Message() {
        header_.msg_iov = &part_;
        header_.msg_iovlen = 1;
        header_.msg_control = control_.data();
        header_.msg_controllen = control_.size();
    }
    bool send(int socket, std::uint64_t netns, int iterator) {
        netns_ = netns;
        cmsghdr* rights = CMSG_FIRSTHDR(&header_);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof iterator);
        std::memcpy(CMSG_DATA(rights), &iterator, sizeof iterator);
        return ::sendmsg(socket, &header_, MSG_NOSIGNAL) == sizeof netns_;
    }
    // False: there is no message, with errno; 0: the other side has gone.
    bool receive(int socket) {
        const ssize_t got = ::recvmsg(socket, &header_, MSG_CMSG_CLOEXEC);
        if (got <= 0) {
            errno = got == 0 ? 0 : errno;
            return false;
        }
        if (const cmsghdr* rights = CMSG_FIRSTHDR(&header_); rights != nullptr && rights->cmsg_type == SCM_RIGHTS) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(rights), sizeof fd);
            iterator_.reset(fd);
        }
        return got == sizeof netns_;
    }
    [[nodiscard]] std::uint64_t netns() const { return netns_; }
    [[nodiscard]] UniqueFd& iterator() { return iterator_; }

 private:
    std::uint64_t netns_ = 0;
    iovec part_{&netns_, sizeof netns_};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control_{};
    msghdr header_{};
    UniqueFd iterator_;
};

void serve(int socket) {
    for (;;) {
        Message asked;
        if (!asked.receive(socket)) {
            if (errno == EINTR) {
                continue;
            }
            return;
        }
        read_to_end(asked.iterator().get());
        asked.iterator().reset();
        const std::uint64_t netns = asked.netns();
        ::send(socket, &netns, sizeof netns, MSG_NOSIGNAL);
    }
}

}  // namespace

void read_to_end(int iterator) {
    std::array<char, 64> nothing{};
    ssize_t got = iterator >= 0 ? 1 : 0;
    while (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) {
        got = ::read(iterator, nothing.data(), nothing.size());
    }
}

int serve_enroller(int socket) {
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {  // they may be sent to all processes of the agent
        ::signal(number, SIG_IGN);
    }
    ::prctl(PR_SET_NAME, "smc-enroller");
    ::syscall(SYS_close_range, 0, socket - 1, 0);  // standard error, too: its reader may wait for the last writer
    for (std::size_t i = 1; i < Enroller::kAtOnce; i++) {
        std::thread(serve, socket).detach();
    }
    serve(socket);
    ::_exit(0);  // threads may wait for locks
}

Enroller::~Enroller() {
    reap();
}

bool Enroller::is_free_for(std::uint64_t netns) const {
    const bool may_start = !started_ || os::now() - *started_ >= kRest;
    return (socket_ || may_start) && under_way_.size() < kAtOnce && !under_way_.contains(netns);
}

Result<void> Enroller::start() {
    started_ = os::now();
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        return last_error("creating a pair of sockets");
    }
    UniqueFd own(ends[0]);
    const UniqueFd theirs(ends[1]);
    ::fcntl(own.get(), F_SETFL, O_NONBLOCK);
    std::string name = "smc-agent", option = "--enroller-fd", number = std::to_string(theirs.get());
    std::array<char*, 4> arguments{name.data(), option.data(), number.data(), nullptr};
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), theirs.get());  // clears FD_CLOEXEC
    // this program, also if its file has been replaced
    const int failed = ::posix_spawn(&process_, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) {
        return Error{failed, "starting a process"};
    }
    process_fd_ = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, process_, 0)));
    socket_.emplace(io_, std::move(own));
    listen();
    return {};
}

Result<void> Enroller::enrol(std::uint64_t netns, UniqueFd iterator) {
    if (!socket_) {
        if (auto started = start(); !started) {
            return started;
        }
    }
    if (!Message().send(socket_->fd(), netns, iterator.get())) {
        return last_error("sending to the enroller");
    }
    under_way_.emplace(netns, os::now());
    return {};
}

void Enroller::listen() {
    socket_->when_readable([this] { hear(); });
}

void Enroller::hear() {
    Message done;
    if (!done.receive(socket_->fd())) {
        if (errno == EAGAIN || errno == EINTR) {
            return listen();
        }
        log()->warn("the bypass: the process that enrols sockets has ended; another one is started when it is needed");
        under_way_.clear();
        return reap();
    }
    under_way_.erase(done.netns());
    listen();
    enrolled_();
}

std::set<std::uint64_t> Enroller::held_up() const {
    std::set<std::uint64_t> found;
    for (const auto& [netns, since] : under_way_) {
        if (os::now() - since >= kUsual) {
            found.insert(netns);
        }
    }
    return found;
}

// Closes the socket, which ends the process, and waits for it without standing still.
void Enroller::reap() {
    socket_.reset();
    if (!process_fd_) {
        return;
    }
    auto ending = std::make_shared<loop::FdWatch>(io_, std::move(process_fd_));
    ending->when_readable([ending, process = std::exchange(process_, 0)] { ::waitpid(process, nullptr, WNOHANG); });
}

}  // namespace smc::bypass
