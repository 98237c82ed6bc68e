// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/gateway/leg_socket.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#ifndef IP_BIND_ADDRESS_NO_PORT
#define IP_BIND_ADDRESS_NO_PORT 24
#endif
#ifndef SO_BINDTOIFINDEX
#define SO_BINDTOIFINDEX 62
#endif
#ifndef IPV6_TRANSPARENT
#define IPV6_TRANSPARENT 75
#endif

namespace smc {

namespace {

void set(int fd, int level, int option, int value) {
    ::setsockopt(fd, level, option, &value, sizeof value);
}

bool bind_to(int fd, const Endpoint& address, int family) {
    sockaddr_storage storage{};
    const socklen_t length = address.to_sockaddr(storage, family);
    return ::bind(fd, reinterpret_cast<sockaddr*>(&storage), length) == 0;
}

// The application's address may be one that the host does not have (IP_TRANSPARENT).
Result<void> bind_like(int fd, Endpoint from, int family, bool apart) {
    from.port = 0;
    // bind() and connect() choose from different halves of the ports. What is TIME_WAIT at the server of an
    // application's connection came from a leg of the server's, and its time stamps would refuse our SYN.
    if (apart && bind_to(fd, from, family)) {
        return {};
    }
    set(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    if (bind_to(fd, from, family)) {
        return {};
    }
    if (errno == EADDRNOTAVAIL) {
        set(fd, family == AF_INET6 ? IPPROTO_IPV6 : IPPROTO_IP, family == AF_INET6 ? IPV6_TRANSPARENT : IP_TRANSPARENT,
            1);
        if (bind_to(fd, from, family)) {
            return {};
        }
    }
    return last_error("binding to " + from.ip_text());
}

}  // namespace

Result<UniqueFd> connect_like(const Namespace& space, const smc_sock& mark, const Likeness& like) {
    const int family = like.to.family();
    auto fd = space.tcp_socket(family, mark, like.owner);
    if (!fd) {
        return fd.error();
    }
    if (like.mark != 0) {
        set(fd->get(), SOL_SOCKET, SO_MARK, static_cast<int>(like.mark));
    }
    if (like.device != 0) {
        set(fd->get(), SOL_SOCKET, SO_BINDTOIFINDEX, static_cast<int>(like.device));
    }
    const bool v6 = family == AF_INET6;
    if (like.ttl != 0) {
        set(fd->get(), v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_UNICAST_HOPS : IP_TTL, like.ttl);
    }
    if (like.tos != 0) {
        set(fd->get(), v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_TCLASS : IP_TOS, like.tos & ~3);
    }
    if (const auto bound = bind_like(fd->get(), like.from, family, mark.role != SMC_ROLE_LEG_SERVER); !bound) {
        return bound.error();
    }
    sockaddr_storage address{};
    const socklen_t length = like.to.to_sockaddr(address, family);
    if (::connect(fd->get(), reinterpret_cast<sockaddr*>(&address), length) != 0 && errno != EINPROGRESS) {
        return last_error("connecting to " + like.to.text());
    }
    return fd;
}

int connect_error(int fd) {
    int error = 0;
    socklen_t size = sizeof error;
    return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

}  // namespace smc
