// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// CLC messages on a TCP socket. Reads exactly one message at a time, and never a byte beyond it.
#pragma once

#include <functional>

#include "agent/loop/fd_watch.h"
#include "smc/clc/framer.h"

namespace smc {

class ClcIo {
 public:
    // Results of reading. After any of them but began(), ClcIo reads on only when read() is called again.
    struct Callbacks {
        std::function<void()> began;  // the first bytes of a message have come
        std::function<void(wire::Bytes message)> message;
        std::function<void(const Fault& fault)> fault;
        std::function<void(bool in_order)> closed;  // false: by an error
    };

    ClcIo(asio::io_context& io, UniqueFd fd, Callbacks callbacks)
        : watch_(io, std::move(fd)), callbacks_(std::move(callbacks)) {}

    // Reads one message. Another call while it waits for one has no effect.
    void read();
    // False: the connection is dead. A message always fits into the empty send buffer of a new connection.
    [[nodiscard]] bool write(const clc::Message& message) const;
    [[nodiscard]] loop::FdWatch& watch() { return watch_; }
    // The bytes that were read, and that are a part of a message or no CLC at all.
    [[nodiscard]] wire::Bytes begun() const { return framer_.begun(); }
    [[nodiscard]] int fd() const { return watch_.fd(); }
    [[nodiscard]] UniqueFd release() { return watch_.release(); }

 private:
    void readable();

    loop::FdWatch watch_;
    Callbacks callbacks_;
    clc::Framer framer_;
    bool reading_ = false;
};

}  // namespace smc
