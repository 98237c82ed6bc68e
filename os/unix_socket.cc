// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "os/unix_socket.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cstring>

namespace smc {

namespace {

Result<sockaddr_un> address_of(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) {
        return Error{ENAMETOOLONG, "using " + path + " as a socket"};
    }
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    return address;
}

}  // namespace

Result<UniqueFd> connect_unix(const std::string& path, int type, std::chrono::seconds longest) {
    const auto address = address_of(path);
    if (!address) {
        return address.error();
    }
    UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
    const timeval timeout{longest.count(), 0};
    if (!fd || ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) != 0 ||
        ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0) {
        return last_error("connecting to " + path);
    }
    return fd;
}

pid_t listener_of(int fd) {
    ucred listener{};
    socklen_t length = sizeof listener;
    return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &listener, &length) == 0 ? listener.pid : 0;
}

Result<UniqueFd> listen_unix(const std::string& path, int type, mode_t mode, int backlog) {
    const auto address = address_of(path);
    if (!address) {
        return address.error();
    }
    UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
    if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0 ||
        ::chmod(path.c_str(), mode) != 0 || ::listen(fd.get(), backlog) != 0) {
        return last_error("listening on " + path);
    }
    return fd;
}

SocketName::~SocketName() {
    if (is_there()) {
        ::unlink(path_.c_str());
    }
}

}  // namespace smc
