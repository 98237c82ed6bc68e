// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// CLC messages on a TCP socket. Exactly one message is read at a time, never a byte behind it.
#pragma once

#include <functional>
#include <optional>

#include "agent/loop/fd_watch.h"
#include "smc/clc/framer.h"

namespace smc {

class ClcIo {
 public:
    // What was read; ClcIo reads on only when it is asked to.
    struct Hooks {
        std::function<void()> began;  // the first bytes of a message, which is not whole yet
        std::function<void(wire::Bytes message)> message;
        std::function<void(const Fault& fault)> fault;
        std::function<void(bool in_order)> closed;  // else with an error
    };

    ClcIo(asio::io_context& io, UniqueFd fd, Hooks hooks) : watch_(io, std::move(fd)), hooks_(std::move(hooks)) {}

    // Reads one message. Asking again while one is awaited changes nothing.
    void read();
    // False: the connection is dead. A message fits into the empty send buffer of a new connection.
    [[nodiscard]] bool write(const clc::Message& message) const;
    [[nodiscard]] loop::FdWatch& watch() { return watch_; }
    // Of what was read: the bytes that no message was made of.
    [[nodiscard]] wire::Bytes begun() const { return framer_.begun(); }
    [[nodiscard]] int fd() const { return watch_.fd(); }
    [[nodiscard]] UniqueFd release() { return watch_.release(); }

 private:
    void readable();

    loop::FdWatch watch_;
    Hooks hooks_;
    clc::Framer framer_;
    bool reading_ = false;
};

}  // namespace smc
