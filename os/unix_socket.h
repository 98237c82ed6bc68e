// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// UNIX sockets by path.
#pragma once

#include <sys/stat.h>

#include <chrono>
#include <optional>
#include <string>

#include "os/file_identity.h"
#include "os/result.h"
#include "os/unique_fd.h"

namespace smc {

// `type`: SOCK_STREAM or SOCK_SEQPACKET, with SOCK_NONBLOCK where that is wanted. SOCK_CLOEXEC is added. `longest`: how
// long connect(), and later each send(), may wait for the listener; 0: for any time.
Result<UniqueFd> connect_unix(const std::string& path, int type, std::chrono::seconds longest = {});
// The process that listens on the socket that `fd` was connected to, as numbered in this PID namespace; 0: not known.
[[nodiscard]] pid_t listener_of(int fd);
// Fails if the path exists already. No process can connect before the socket has `mode`.
Result<UniqueFd> listen_unix(const std::string& path, int type, mode_t mode, int backlog);

// The path of a socket that this process listens on. It is removed with this object, unless it leads to another file by
// then.
class SocketName {
 public:
    explicit SocketName(std::string path) : path_(std::move(path)), identity_(FileIdentity::at(path_)) {}
    ~SocketName();
    SocketName(const SocketName&) = delete;
    SocketName& operator=(const SocketName&) = delete;

    // False: somebody has deleted it, or made something else of that name, so nobody can connect.
    [[nodiscard]] bool is_there() const { return identity_ && FileIdentity::at(path_) == identity_; }

 private:
    std::string path_;
    std::optional<FileIdentity> identity_;
};

}  // namespace smc
