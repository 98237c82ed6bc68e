// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A file or a directory that only one process at a time can hold, at most until that process ends. Whoever deletes it
// lets another process take a new one of that name; restore() notices.
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
        std::swap(directory_, other.directory_);
        std::swap(fd_, other.fd_);
        return *this;
    }
    LockFile(const LockFile&) = delete;
    LockFile& operator=(const LockFile&) = delete;
    // Removes the file or the directory, unless its path leads elsewhere by now.
    ~LockFile();

    // Whether the file or directory is still where it was taken.
    [[nodiscard]] bool is_there() const;
    // If it was deleted: takes a new one in its place. An Error leaves this lock as it is; EBUSY: another process has
    // the new one. True: a new one was taken.
    Result<bool> restore();

 private:
    static Result<LockFile> take(const std::string& path, bool directory);
    LockFile(std::string path, bool directory, UniqueFd fd)
        : path_(std::move(path)), directory_(directory), fd_(std::move(fd)) {}
    std::string path_;
    bool directory_;
    UniqueFd fd_;
};

}  // namespace smc
