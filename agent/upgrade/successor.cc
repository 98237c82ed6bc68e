// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/upgrade/successor.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

namespace smc::upgrade {

namespace {

constexpr const char *kTakeOver = "--take-over", *kReadyFd = "--ready-fd";

// Resolves /proc/self/exe instead of executing it: the link leads to the file that this process runs, even if its path
// has another file now.
Result<std::string> installed_program() {
    std::error_code failure;
    std::string path = std::filesystem::read_symlink("/proc/self/exe", failure).string();
    constexpr std::string_view kReplaced = " (deleted)";
    if (path.ends_with(kReplaced)) {
        path.resize(path.size() - kReplaced.size());
    }
    return failure ? Result<std::string>(Error{failure.value(), "finding this agent's program file"}) : path;
}

// The arguments of this process, without those that the agent which started it has added.
std::vector<std::string> own_arguments() {
    std::vector<std::string> arguments;
    std::ifstream file("/proc/self/cmdline");
    for (std::string one; std::getline(file, one, '\0');) {
        if (one == kReadyFd) {
            std::getline(file, one, '\0');
        } else if (one != kTakeOver) {
            arguments.push_back(one);
        }
    }
    return arguments;
}

}  // namespace

Result<Successor> Successor::start() {
    const auto program = installed_program();
    return program ? start(*program, own_arguments()) : program.error();
}

Result<Successor> Successor::start(const std::string& program, std::vector<std::string> arguments) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        return last_error("creating a pipe");
    }
    UniqueFd ready(ends[0]);
    const UniqueFd theirs(ends[1]);
    arguments.insert(arguments.end(), {kTakeOver, kReadyFd, std::to_string(theirs.get())});
    std::vector<char*> pointers;
    std::ranges::transform(arguments, std::back_inserter(pointers), [](std::string& one) { return one.data(); });
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), theirs.get());  // clears FD_CLOEXEC
    pid_t pid = 0;
    const int failed = ::posix_spawn(&pid, program.c_str(), &actions, nullptr, pointers.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) {
        return Error{failed, "starting " + program};
    }
    return Successor(pid, std::move(ready));
}

bool Successor::serves() {
    char byte = 0;
    serves_ = serves_ || ::read(ready_.get(), &byte, 1) == 1;
    return serves_;
}

std::optional<Successor::End> Successor::ended() const {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) != pid_) {
        return std::nullopt;
    }
    if (WIFEXITED(status)) {
        return End{WEXITSTATUS(status) == 0, "exit code " + std::to_string(WEXITSTATUS(status))};
    }
    return End{false, "signal " + std::to_string(WTERMSIG(status))};
}

void Successor::stop() const {
    ::kill(pid_, SIGTERM);
}

void Successor::kill() const {
    ::kill(pid_, SIGKILL);  // not waited for yet, so no other process has its number
}

// The protocol of sd_notify(3): a datagram to a socket that the environment names.
void tell_service_manager(pid_t main_process) {
    const char* path = std::getenv("NOTIFY_SOCKET");  // NOLINT(concurrency-mt-unsafe): nobody changes it
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    const std::size_t length = path != nullptr ? std::strlen(path) : 0;
    if (length == 0 || length >= sizeof to.sun_path) {
        return;
    }
    std::memcpy(to.sun_path, path, length);
    if (path[0] == '@') {
        to.sun_path[0] = '\0';
    }
    const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const std::string message = "MAINPID=" + std::to_string(main_process);
    ::sendto(socket.get(), message.data(), message.size(), MSG_NOSIGNAL, reinterpret_cast<sockaddr*>(&to),
             static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length));
}

}  // namespace smc::upgrade
