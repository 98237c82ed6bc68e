// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "os/exclusive_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

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

// Whether the process has the name and the effective user of this one.
bool is_like_this_one(int pid, const std::string& own_name) {
    struct stat status {};
    const fs::path process = fs::path("/proc") / std::to_string(pid);
    return pid != ::getpid() && name_of(process) == own_name && ::stat(process.c_str(), &status) == 0 &&
           status.st_uid == ::geteuid();
}

// The same device, or the same ordinary file. A path alone says little: that process may have other mounts.
bool is_same(const struct stat& a, const struct stat& b) {
    const bool device = S_ISCHR(a.st_mode) || S_ISBLK(a.st_mode);
    return (a.st_mode & S_IFMT) == (b.st_mode & S_IFMT) &&
           (device ? a.st_rdev == b.st_rdev : a.st_dev == b.st_dev && a.st_ino == b.st_ino);
}

}  // namespace

UniqueFd share_open_file(const std::string& path) {
    struct stat wanted {};
    if (::stat(path.c_str(), &wanted) != 0) {
        return {};
    }
    const fs::path processes = "/proc";
    const std::string own_name = name_of(processes / "self");
    for (const int pid : numbers_in(processes)) {
        if (!is_like_this_one(pid, own_name)) {
            continue;
        }
        const fs::path descriptors = processes / std::to_string(pid) / "fd";
        for (const int fd : numbers_in(descriptors)) {
            std::error_code failure;
            if (fs::read_symlink(descriptors / std::to_string(fd), failure) != path) {
                continue;
            }
            UniqueFd shared = shared_by(pid, fd);
            struct stat found {};
            if (shared && ::fstat(shared.get(), &found) == 0 && is_same(found, wanted)) {
                return shared;
            }
        }
    }
    return {};
}

Result<UniqueFd> open_exclusive(const std::string& path) {
    UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (file || errno != EBUSY) {
        return file ? Result<UniqueFd>(std::move(file)) : last_error("opening " + path);
    }
    if (UniqueFd shared = share_open_file(path)) {
        return shared;
    }
    file.reset(::open(path.c_str(), O_RDWR | O_CLOEXEC));  // its owner may have gone
    return file ? Result<UniqueFd>(std::move(file)) : last_error("opening " + path);
}

}  // namespace smc
