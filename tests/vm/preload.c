// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Makes a program's TCP sockets AF_SMC sockets, so that programs of Debian's packages become native peers.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/socket.h>

#define AF_SMC_FAMILY 43

int socket(int domain, int type, int protocol) {
    int (*next)(int, int, int) = (int (*)(int, int, int))dlsym(RTLD_NEXT, "socket");
    if ((domain == AF_INET || domain == AF_INET6) && (type & 0xf) == SOCK_STREAM) {
        return next(AF_SMC_FAMILY, type, domain == AF_INET6);
    }
    return next(domain, type, protocol);
}
