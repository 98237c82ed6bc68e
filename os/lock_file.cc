// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "os/lock_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace smc {

namespace {

// Whoever had it may have removed it between our open() and our lock.
bool is_at(const std::string& path, int fd) {
    struct stat there {
    }, ours{};
    return ::stat(path.c_str(), &there) == 0 && ::fstat(fd, &ours) == 0 && there.st_ino == ours.st_ino &&
           there.st_dev == ours.st_dev;
}

}  // namespace

Result<LockFile> LockFile::take(const std::string& path) {
    for (;;) {
        UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
        if (!fd) {
            return last_error("creating " + path);
        }
        if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
            return Error{errno == EWOULDBLOCK ? EBUSY : errno, "taking " + path};
        }
        if (is_at(path, fd.get())) {
            return LockFile(path, std::move(fd));
        }
    }
}

LockFile::~LockFile() {
    if (fd_) {
        ::unlink(path_.c_str());
    }
}

}  // namespace smc
