// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Asks the kernel's connection tracking about TCP connections.
#pragma once

#include <memory>
#include <optional>

#include "os/endpoint.h"
#include "os/result.h"

struct mnl_socket;

namespace smc {

class Conntrack {
 public:
    // Opens a socket in the calling thread's network namespace. Fails if the kernel tracks no connections.
    static Result<Conntrack> open();
    // Whether an entry has these addresses in its original or its reply direction. Nothing: the kernel did not answer.
    [[nodiscard]] std::optional<bool> has(const Endpoint& source, const Endpoint& destination);

 private:
    struct Close {
        void operator()(mnl_socket* socket) const;
    };
    explicit Conntrack(std::unique_ptr<mnl_socket, Close> socket) : socket_(std::move(socket)) {}

    std::unique_ptr<mnl_socket, Close> socket_;
    unsigned asked_ = 0;
};

}  // namespace smc
