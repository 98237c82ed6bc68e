// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <unistd.h>

#include <array>
#include <cerrno>

namespace smc::os {

// Reads and drops all that a descriptor has: an iterator of BPF does its work meanwhile. An iterator over
// TCP sockets waits for the lock of each (see SockDiag::abort()). Returns 0 or an errno value.
inline int read_to_end(int fd) {
    std::array<char, 64> nothing{};
    for (;;) {
        const ssize_t got = ::read(fd, nothing.data(), nothing.size());
        if (got == 0) {
            return 0;
        }
        if (got < 0 && errno != EAGAIN && errno != EINTR) {
            return errno;
        }
    }
}

}  // namespace smc::os
