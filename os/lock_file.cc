// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "os/lock_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace smc {

namespace {

// Whether `path` still leads to the open file: its owner may have removed it between our open() and our flock().
bool is_at(const std::string& path, int fd) {
    struct stat there {
    }, ours{};
    return ::stat(path.c_str(), &there) == 0 && ::fstat(fd, &ours) == 0 && there.st_ino == ours.st_ino &&
           there.st_dev == ours.st_dev;
}

}  // namespace

Result<LockFile> LockFile::take(const std::string& path, bool directory) {
    for (;;) {
        if (directory && ::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
            return last_error("creating " + path);
        }
        const int how = directory ? O_RDONLY | O_DIRECTORY | O_NOFOLLOW : O_RDWR | O_CREAT;
        UniqueFd fd(::open(path.c_str(), how | O_CLOEXEC, 0600));
        if (!fd && directory && errno == ENOENT) {
            continue;  // its owner has removed it meanwhile
        }
        if (!fd) {
            return last_error("creating " + path);
        }
        if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
            return Error{errno == EWOULDBLOCK ? EBUSY : errno, "locking " + path};
        }
        if (is_at(path, fd.get())) {
            return LockFile(path, std::move(fd));
        }
    }
}

LockFile::~LockFile() {
    if (fd_) {
        ::remove(path_.c_str());
    }
}

}  // namespace smc
