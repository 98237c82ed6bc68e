// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// UNIX sockets by path.
#pragma once

#include <sys/stat.h>

#include <string>

#include "os/result.h"
#include "os/unique_fd.h"

namespace smc {

// `type`: SOCK_STREAM or SOCK_SEQPACKET, with SOCK_NONBLOCK where that is wanted. SOCK_CLOEXEC is added.
Result<UniqueFd> connect_unix(const std::string& path, int type);
// Fails if the path exists already. No process can connect before the socket has `mode`.
Result<UniqueFd> listen_unix(const std::string& path, int type, mode_t mode, int backlog);

}  // namespace smc
