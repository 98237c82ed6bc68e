// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Descriptors that Asio watches.
#pragma once

#include <asio/posix/stream_descriptor.hpp>
#include <system_error>

#include "os/result.h"
#include "os/unique_fd.h"

namespace smc::os {

// Gives `fd` to `to`, which must have none. If epoll takes no more (fs.epoll.max_user_watches), `fd` stays as it is.
inline Result<void> watch(asio::posix::stream_descriptor& to, UniqueFd&& fd) {
    std::error_code failure;
    to.assign(fd.get(), failure);
    if (failure) {
        return Error{failure.value(), "watching a descriptor by epoll (fs.epoll.max_user_watches?)"};
    }
    (void)fd.release();
    return {};
}

}  // namespace smc::os
