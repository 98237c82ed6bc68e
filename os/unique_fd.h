// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The one owner of a file descriptor. -1 is the only closed value.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <utility>

namespace smc {

class UniqueFd {
 public:
    UniqueFd() = default;
    explicit UniqueFd(int fd) : fd_(fd) {}
    UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
    UniqueFd& operator=(UniqueFd&& other) noexcept {
        reset(other.release());
        return *this;
    }
    UniqueFd(const UniqueFd&) = delete;
    UniqueFd& operator=(const UniqueFd&) = delete;
    ~UniqueFd() { reset(); }

    [[nodiscard]] int get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }
    [[nodiscard]] int release() { return std::exchange(fd_, -1); }
    void reset(int fd = -1) {
        const int old = std::exchange(fd_, fd);
        if (old >= 0) {
            ::close(old);
        }
    }

 private:
    int fd_ = -1;
};

// Another descriptor of the same open file, with close-on-exec, which dup() would not set.
[[nodiscard]] inline UniqueFd duplicate(int fd) {
    return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

}  // namespace smc
