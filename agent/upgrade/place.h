// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Agents of one control socket that are there at the same time: one serves, the others are leaving, and keep the
// connections that they have. Each has a number of its own, by which what they leave on devices and pin is told apart.
#pragma once

#include <string>
#include <vector>

#include "os/lock_file.h"

namespace smc::upgrade {

class Place {
 public:
    static constexpr unsigned kMost = 8;

    // The lowest number that nobody has. EBUSY: all are taken.
    static Result<Place> take(const std::string& control_socket);

    [[nodiscard]] unsigned number() const { return number_; }
    // The numbers that nobody else had then: what is there under one of these is of an agent that was killed.
    [[nodiscard]] const std::vector<unsigned>& deserted() const { return deserted_; }

    // Where the agent of a place answers smcctl when it is leaving.
    static std::string socket_of(const std::string& control_socket, unsigned number);
    // Those that are there.
    static std::vector<std::string> leaving(const std::string& control_socket);

 private:
    Place(unsigned number, LockFile lock) : number_(number), lock_(std::move(lock)) {}
    unsigned number_;
    LockFile lock_;
    std::vector<unsigned> deserted_;
};

}  // namespace smc::upgrade
