// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// TCP sockets of other processes (sock_diag(7)): their state, and their end, as `ss --kill` brings it about. The latter
// needs a kernel with CONFIG_INET_DIAG_DESTROY.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "os/endpoint.h"
#include "os/result.h"
#include "os/unique_fd.h"

struct mnl_socket;

namespace smc {

class SockDiag {
 public:
    static constexpr std::uint64_t kAnyCookie = ~std::uint64_t{0};
    struct Socket {
        Endpoint local, remote;
        std::uint64_t cookie = 0;        // SO_COOKIE of the socket, or kAnyCookie
        std::uint32_t bound_device = 0;  // index; 0: none
    };

    // For the sockets of the calling thread's network namespace.
    static Result<SockDiag> open();
    // Of a descriptor that another process has opened, for the sockets of the namespace that it was in.
    static Result<SockDiag> of(UniqueFd fd);
    [[nodiscard]] int fd() const;
    // Ends a socket. Waits for its lock, for any time and beyond SIGKILL: only loop::LockHelper may do that for sockets
    // of applications. Its application gets ECONNABORTED, after the data that it has not read yet. ENOENT: there is no
    // such socket. EOPNOTSUPP: the kernel does not support this.
    [[nodiscard]] Result<void> abort(const Socket& which) const;
    struct Listed {
        Endpoint local, remote;
        int state = 0;             // TCP_ESTABLISHED and so on
        std::uint64_t cgroup = 0;  // ID; 0: the kernel does not say
    };
    // TCP sockets of a family (AF_INET, AF_INET6) in these states: bits 1 << TCP_ESTABLISHED and so on. At most `most`;
    // if there are more, this object cannot be used again.
    [[nodiscard]] Result<std::vector<Listed>> list(int family, std::uint32_t states, std::size_t most) const;
    // The state of the socket (TCP_ESTABLISHED and so on, <netinet/tcp.h>). nullopt: there is no such socket, or the
    // kernel does not say.
    [[nodiscard]] std::optional<int> state_of(const Socket& which) const;

 private:
    struct Close {
        void operator()(mnl_socket* socket) const;
    };
    explicit SockDiag(std::unique_ptr<mnl_socket, Close> socket) : socket_(std::move(socket)) {}

    std::unique_ptr<mnl_socket, Close> socket_;
};

}  // namespace smc
