// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/upgrade/place.h"

#include <unistd.h>

#include <filesystem>
#include <optional>
#include <system_error>

namespace smc::upgrade {

Result<Place> Place::take(const std::string& control_socket) {
    std::error_code failure;
    std::filesystem::create_directories(std::filesystem::path(control_socket).parent_path(), failure);
    std::optional<Place> place;
    std::vector<unsigned> deserted;
    for (unsigned number = 0; number < kMost; number++) {
        auto lock = LockFile::take(control_socket + ".place-" + std::to_string(number));
        if (!lock && lock.error().code != EBUSY) {
            return lock.error();
        }
        if (lock) {
            deserted.push_back(number);
            ::unlink(socket_of(control_socket, number).c_str());
            if (!place) {
                place.emplace(Place(number, std::move(*lock)));
            }
        }
    }
    if (!place) {
        return Error{EBUSY, "finding a place beside the " + std::to_string(kMost) + " agents of " + control_socket +
                                " that are leaving"};
    }
    place->deserted_ = std::move(deserted);
    return std::move(*place);
}

std::string Place::socket_of(const std::string& control_socket, unsigned number) {
    return control_socket + ".leaving-" + std::to_string(number);
}

std::vector<std::string> Place::leaving(const std::string& control_socket) {
    std::vector<std::string> sockets;
    for (unsigned number = 0; number < kMost; number++) {
        std::error_code ignored;
        if (std::filesystem::exists(socket_of(control_socket, number), ignored)) {
            sockets.push_back(socket_of(control_socket, number));
        }
    }
    return sockets;
}

}  // namespace smc::upgrade
