// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// CLC messages on a TCP socket: exactly one message is read, never a byte behind it, because after a
// Decline those bytes are the application's.
#pragma once

#include <variant>

#include "agent/loop/async_fd.h"
#include "smc/wire/clc.h"

namespace smc {

struct ClcClosed {
    int error = 0;  // 0: end of file
};
struct ClcTimeout {};
struct ClcCancelled {};
using ClcRead = std::variant<clc::Message, clc::Fault, ClcClosed, ClcTimeout, ClcCancelled>;

asio::awaitable<ClcRead> read_clc(AsyncFd& socket, TimePoint deadline);

// A message fits into the empty send buffer of a new connection; anything else is a dead connection.
bool send_clc(int fd, const clc::Message& message);

}  // namespace smc
