// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/upgrade/instance.h"

#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "os/unix_socket.h"

namespace smc::upgrade {

namespace {

std::string lock_of(const std::string& control_socket, unsigned number) {
    return control_socket + ".place-" + std::to_string(number);
}

void make_directory(const std::string& control_socket) {
    std::error_code failure;  // taking the lock fails, too, and says why
    std::filesystem::create_directories(std::filesystem::path(control_socket).parent_path(), failure);
}

}  // namespace

Result<Instance> Instance::take(const std::string& control_socket) {
    make_directory(control_socket);
    for (unsigned number = 0; number < kMost; number++) {
        auto lock = LockFile::take(lock_of(control_socket, number));
        if (lock) {
            return Instance(control_socket, number, std::move(*lock));
        }
        if (lock.error().code != EBUSY) {
            return lock.error();
        }
    }
    return Error{EBUSY, "finding a free instance number: all " + std::to_string(kMost) + " are used by agents of " +
                            control_socket + " that are leaving"};
}

std::vector<unsigned> Instance::clear_deserted() const {
    std::vector<unsigned> found{number_};
    for (unsigned number = 0; number < kMost; number++) {
        if (number != number_ && LockFile::take(lock_of(control_socket_, number))) {
            ::unlink(socket_of(control_socket_, number).c_str());
            found.push_back(number);
        }
    }
    return found;
}

Result<bool> Instance::restore() {
    if (lock_.is_there()) {
        return false;
    }
    make_directory(control_socket_);
    return lock_.restore();
}

std::string Instance::socket_of(const std::string& control_socket, unsigned number) {
    return control_socket + ".leaving-" + std::to_string(number);
}

std::vector<std::string> Instance::leaving(const std::string& control_socket) {
    std::vector<std::string> sockets;
    for (unsigned number = 0; number < kMost; number++) {
        std::string socket = socket_of(control_socket, number);
        if (connect_unix(socket, SOCK_STREAM | SOCK_NONBLOCK)) {
            sockets.push_back(std::move(socket));
        }
    }
    return sockets;
}

}  // namespace smc::upgrade
