// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "os/exclusive_file.h"

#include <sys/syscall.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

namespace smc {

namespace {

namespace fs = std::filesystem;

std::string name_of(const fs::path& process) {
    std::string name;
    std::getline(std::ifstream(process / "comm"), name);
    return name;
}

std::optional<int> number_in(const fs::path& path) {
    const std::string name = path.filename().string();
    int number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    return error == std::errc() && end == name.data() + name.size() ? std::optional(number) : std::nullopt;
}

// The names in /proc, or in a process's fd directory, that are numbers. Entries that vanish meanwhile are left out.
std::vector<int> numbers_in(const fs::path& directory) {
    std::vector<int> numbers;
    std::error_code failure;
    for (fs::directory_iterator it(directory, failure), end; !failure && it != end; it.increment(failure)) {
        if (const auto number = number_in(it->path())) {
            numbers.push_back(*number);
        }
    }
    return numbers;
}

UniqueFd shared_by(pid_t pid, int fd) {
    const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), fd, 0)));
}

}  // namespace

Result<UniqueFd> open_exclusive(const std::string& path) {
    UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (file || errno != EBUSY) {
        return file ? Result<UniqueFd>(std::move(file)) : last_error("opening " + path);
    }
    const fs::path processes = "/proc";
    const std::string own_name = name_of(processes / "self");
    for (const int pid : numbers_in(processes)) {
        const fs::path process = processes / std::to_string(pid);
        if (pid == ::getpid() || name_of(process) != own_name) {
            continue;
        }
        for (const int fd : numbers_in(process / "fd")) {
            std::error_code failure;
            if (fs::read_symlink(process / "fd" / std::to_string(fd), failure) == path) {
                if (UniqueFd shared = shared_by(pid, fd)) {
                    return shared;
                }
            }
        }
    }
    file.reset(::open(path.c_str(), O_RDWR | O_CLOEXEC));  // its owner may have gone
    return file ? Result<UniqueFd>(std::move(file)) : last_error("opening " + path);
}

}  // namespace smc
