// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/gateway/socket_options.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
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

// bind() and connect() choose from different halves of the port range. Without a wished port, the agent's sockets take
// one of bind()'s half, because connect() gives applications the other one: a server may hold an application's port in
// TIME_WAIT with the time stamps of a leg there, and would not accept a SYN from the same port with older ones.
bool bind_somewhere(int fd, Endpoint from, int family) {
    if (from.port != 0) {
        set(fd, SOL_SOCKET, SO_REUSEADDR, 1);  // several sockets may use the port, for different peers
        if (bind_to(fd, from, family)) {
            return true;
        }
        set(fd, SOL_SOCKET, SO_REUSEADDR, 0);
        from.port = 0;
    }
    if (bind_to(fd, from, family)) {
        return true;
    }
    set(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    return bind_to(fd, from, family);
}

// `foreign`: the address may be one that the host does not have (IP_TRANSPARENT), as the application's may.
Result<void> bind_from(int fd, const Endpoint& from, int family, bool foreign) {
    if (bind_somewhere(fd, from, family)) {
        return {};
    }
    if (errno == EADDRNOTAVAIL && foreign) {
        set(fd, family == AF_INET6 ? IPPROTO_IPV6 : IPPROTO_IP, family == AF_INET6 ? IPV6_TRANSPARENT : IP_TRANSPARENT,
            1);
        if (bind_somewhere(fd, from, family)) {
            return {};
        }
    }
    return last_error("binding to " + from.ip_text());
}

Result<UniqueFd> try_to_connect(const bpf::Programs& programs, const Namespace& netns, const smc_sock& mark,
                                const SocketOptions& options, UniqueFd ready) {
    const int family = options.to.family();
    Result<UniqueFd> fd(std::move(ready));
    if (!*fd) {
        auto made = netns.tcp_sockets(family, options.owner, 1);
        if (!made) {
            return made.error();
        }
        fd = std::move(made->front());
    }
    if (auto marked = programs.mark_socket(fd->get(), mark); !marked) {
        return marked.error();
    }
    if (options.mark != 0) {
        set(fd->get(), SOL_SOCKET, SO_MARK, static_cast<int>(options.mark));
    }
    if (options.device != 0) {
        set(fd->get(), SOL_SOCKET, SO_BINDTOIFINDEX, static_cast<int>(options.device));
    }
    const bool v6 = family == AF_INET6;
    if (options.ttl != 0) {
        set(fd->get(), v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_UNICAST_HOPS : IP_TTL, options.ttl);
    }
    if (options.tos != 0) {
        set(fd->get(), v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_TCLASS : IP_TOS, options.tos & ~3);
    }
    if (const auto bound = bind_from(fd->get(), options.from, family, options.foreign); !bound) {
        return bound.error();
    }
    sockaddr_storage address{};
    const socklen_t length = options.to.to_sockaddr(address, family);
    if (::connect(fd->get(), reinterpret_cast<sockaddr*>(&address), length) != 0 && errno != EINPROGRESS) {
        return last_error("connecting to " + options.to.text());
    }
    return fd;
}

}  // namespace

Result<UniqueFd> connect_with(const bpf::Programs& programs, const Namespace& netns, const smc_sock& mark,
                              const SocketOptions& options, UniqueFd ready) {
    auto fd = try_to_connect(programs, netns, mark, options, std::move(ready));
    if (!fd && fd.error().code == EADDRNOTAVAIL && options.from.port != 0) {
        SocketOptions elsewhere = options;  // the wished port is in TIME_WAIT
        elsewhere.from.port = 0;
        return try_to_connect(programs, netns, mark, elsewhere, {});
    }
    return fd;
}

bool is_connecting(int fd) {
    pollfd ready{fd, POLLOUT, 0};
    return ::poll(&ready, 1, 0) == 0;
}

bool was_reset(int fd) {
    tcp_info info{};
    socklen_t size = sizeof info;
    return ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_state == TCP_CLOSE;
}

void disconnect(int fd) {
    const sockaddr nowhere{.sa_family = AF_UNSPEC, .sa_data = {}};
    [[maybe_unused]] const int done = ::connect(fd, &nowhere, sizeof nowhere);
}

int take_connect_error(int fd) {
    pollfd ready{fd, POLLOUT, 0};
    if (::poll(&ready, 1, 0) == 0) {
        return EINPROGRESS;
    }
    if ((ready.revents & (POLLERR | POLLHUP)) == 0) {
        return 0;
    }
    int error = 0;
    socklen_t size = sizeof error;
    return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

}  // namespace smc
