// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Options of the agent's own TCP sockets. Accepted sockets inherit them from their listener.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace smc::os {

inline void set_option(int fd, int level, int option, int value) {
    ::setsockopt(fd, level, option, &value, sizeof value);
}

// true: close() sends a reset.
inline void set_reset_on_close(int fd, bool on) {
    const linger value{on ? 1 : 0, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &value, sizeof value);
}

// Options of every socket of the data path: close() sends a reset, because the agent may end at any time (L1 in
// datapath/tcp_socket.h); and reading never skips an urgent byte. The BPF programs set the others (bpf/smc_option.h).
inline void prepare_tcp(int fd) {
    set_reset_on_close(fd, true);
    set_option(fd, SOL_SOCKET, SO_OOBINLINE, 1);
}

}  // namespace smc::os
