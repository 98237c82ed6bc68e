// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which file a path leads to, so that a file of the same name that somebody else has made is not taken for one's own.
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>

namespace smc {

struct FileIdentity {
    dev_t device = 0;
    ino_t inode = 0;
    auto operator<=>(const FileIdentity&) const = default;

    // Empty: no file is there, or it cannot be looked at. Symbolic links are followed.
    static std::optional<FileIdentity> at(const std::string& path) {
        struct stat found {};
        return ::stat(path.c_str(), &found) == 0 ? std::optional(FileIdentity{found.st_dev, found.st_ino})
                                                 : std::nullopt;
    }
    static std::optional<FileIdentity> of(int fd) {
        struct stat found {};
        return ::fstat(fd, &found) == 0 ? std::optional(FileIdentity{found.st_dev, found.st_ino}) : std::nullopt;
    }
};

}  // namespace smc
