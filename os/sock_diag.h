// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Ends TCP sockets of others, as `ss --kill` does (sock_diag(7)). The kernel needs CONFIG_INET_DIAG_DESTROY.
#pragma once

#include <cstdint>
#include <memory>

#include "os/endpoint.h"
#include "os/result.h"

struct mnl_socket;

namespace smc {

class SockDiag {
 public:
    struct Socket {
        Endpoint local, remote;
        std::uint64_t cookie = 0;        // of that very socket: SO_COOKIE
        std::uint32_t bound_device = 0;  // index; 0: none
    };

    // In the calling thread's network namespace, and for that one.
    static Result<SockDiag> open();
    // Its application hears of ECONNABORTED, behind what it has not read yet. ENOENT: there is no such socket.
    // EOPNOTSUPP: this kernel does not do it.
    [[nodiscard]] Result<void> abort(const Socket& which) const;

 private:
    struct Close {
        void operator()(mnl_socket* socket) const;
    };
    explicit SockDiag(std::unique_ptr<mnl_socket, Close> socket) : socket_(std::move(socket)) {}

    std::unique_ptr<mnl_socket, Close> socket_;
};

}  // namespace smc
