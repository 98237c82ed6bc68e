// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A file or a directory that only one process at a time can hold, at most until that process ends.
#pragma once

#include <string>
#include <utility>

#include "os/result.h"
#include "os/unique_fd.h"

namespace smc {

class LockFile {
 public:
    // EBUSY: another process has it.
    static Result<LockFile> take(const std::string& path) { return take(path, false); }
    // The same with a directory, for file systems without regular files, such as bpffs.
    static Result<LockFile> take_directory(const std::string& path) { return take(path, true); }

    LockFile(LockFile&&) noexcept = default;
    LockFile& operator=(LockFile&& other) noexcept {
        std::swap(path_, other.path_);
        std::swap(fd_, other.fd_);
        return *this;
    }
    LockFile(const LockFile&) = delete;
    LockFile& operator=(const LockFile&) = delete;
    // Removes the file or the directory.
    ~LockFile();

 private:
    static Result<LockFile> take(const std::string& path, bool directory);
    LockFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
    std::string path_;
    UniqueFd fd_;
};

}  // namespace smc
