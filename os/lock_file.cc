// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "os/lock_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>

#include "os/file_identity.h"

namespace smc {

namespace {

// Whether `path` still leads to the open file: its owner may have removed it between our open() and our flock().
bool is_at(const std::string& path, int fd) {
    const auto ours = FileIdentity::of(fd);
    return ours && FileIdentity::at(path) == ours;
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
            return LockFile(path, directory, std::move(fd));
        }
    }
}

LockFile::~LockFile() {
    if (fd_ && is_there()) {
        ::remove(path_.c_str());
    }
}

bool LockFile::is_there() const {
    return is_at(path_, fd_.get());
}

Result<bool> LockFile::restore() {
    if (is_there()) {
        return false;
    }
    auto again = take(path_, directory_);
    if (!again) {
        return again.error();
    }
    *this = std::move(*again);
    return true;
}

}  // namespace smc
