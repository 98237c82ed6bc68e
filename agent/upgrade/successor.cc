// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/upgrade/successor.h"

#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "os/unique_fd.h"

namespace smc::upgrade {

namespace {

constexpr const char* kTakeOver = "--take-over";

// Not /proc/self/exe itself: that is the file which this one was started from, also when another has its name now.
Result<std::string> installed_program() {
    std::error_code failure;
    std::string path = std::filesystem::read_symlink("/proc/self/exe", failure).string();
    constexpr std::string_view kReplaced = " (deleted)";
    if (path.ends_with(kReplaced)) {
        path.resize(path.size() - kReplaced.size());
    }
    return failure ? Result<std::string>(Error{failure.value(), "finding the own program"}) : path;
}

std::vector<std::string> own_arguments() {
    std::vector<std::string> arguments;
    std::ifstream file("/proc/self/cmdline");
    for (std::string one; std::getline(file, one, '\0');) {
        arguments.push_back(one);
    }
    return arguments;
}

}  // namespace

Result<Successor> Successor::start() {
    const auto program = installed_program();
    if (!program) {
        return program.error();
    }
    std::vector<std::string> arguments = own_arguments();
    if (std::ranges::find(arguments, kTakeOver) == arguments.end()) {
        arguments.emplace_back(kTakeOver);
    }
    std::vector<char*> pointers;
    std::ranges::transform(arguments, std::back_inserter(pointers), [](std::string& one) { return one.data(); });
    pointers.push_back(nullptr);
    pid_t pid = 0;
    if (const int failed = ::posix_spawn(&pid, program->c_str(), nullptr, nullptr, pointers.data(), environ);
        failed != 0) {
        return Error{failed, "starting " + *program};
    }
    return Successor(pid);
}

std::optional<std::string> Successor::ended() {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) != pid_) {
        return std::nullopt;
    }
    return WIFEXITED(status) ? "exit code " + std::to_string(WEXITSTATUS(status))
                             : "signal " + std::to_string(WTERMSIG(status));
}

// The protocol of sd_notify(3): a datagram to a socket that the environment names.
void tell_service_manager(pid_t main_process) {
    const char* path = std::getenv("NOTIFY_SOCKET");
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
