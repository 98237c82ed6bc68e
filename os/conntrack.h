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
    // Of the calling thread's network namespace. An Error where the kernel tracks no connections.
    static Result<Conntrack> open();
    // There is an entry one direction of which is this. Nothing: it could not be asked.
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
