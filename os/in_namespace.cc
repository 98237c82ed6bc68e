// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "os/in_namespace.h"

#include <fcntl.h>
#include <sched.h>

#include <cstdio>
#include <cstdlib>

#include "os/unique_fd.h"

namespace smc {

int home_netns() {
    static const UniqueFd home(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
    return home.get();
}

InNamespace::InNamespace(int netns_fd) {
    home_netns();
    entered_ = ::setns(netns_fd, CLONE_NEWNET) == 0;
}

InNamespace::~InNamespace() {
    if (entered_ && ::setns(home_netns(), CLONE_NEWNET) != 0) {
        std::perror("smc: returning to the process's own network namespace");
        std::abort();
    }
}

}  // namespace smc
