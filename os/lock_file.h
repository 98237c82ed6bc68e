// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A file that one process has at a time, as long as it lives.
#pragma once

#include <string>
#include <utility>

#include "os/result.h"
#include "os/unique_fd.h"

namespace smc {

class LockFile {
 public:
    // EBUSY: another process has it.
    static Result<LockFile> take(const std::string& path);

    LockFile(LockFile&&) noexcept = default;
    LockFile& operator=(LockFile&& other) noexcept {
        std::swap(path_, other.path_);
        std::swap(fd_, other.fd_);
        return *this;
    }
    LockFile(const LockFile&) = delete;
    LockFile& operator=(const LockFile&) = delete;
    // Removes the file.
    ~LockFile();

 private:
    LockFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
    std::string path_;
    UniqueFd fd_;
};

}  // namespace smc
