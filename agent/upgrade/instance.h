// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Agents of one control socket that are there at the same time: one serves, the others are leaving, and keep the
// connections that they have. Each has a number of its own, by which what they leave on devices and pin is told apart.
#pragma once

#include <string>
#include <vector>

#include "os/lock_file.h"

namespace smc::upgrade {

class Instance {
 public:
    static constexpr unsigned kMost = 8;

    // The lowest number that nobody has. EBUSY: all are taken.
    static Result<Instance> take(const std::string& control_socket);

    [[nodiscard]] unsigned number() const { return number_; }
    // The numbers that nobody else has, its own too: what is there under one of these is of an agent that was killed.
    // For who has the control socket's lock: without it another agent may be about to take one.
    [[nodiscard]] std::vector<unsigned> deserted() const;

    // Where the agent of that number answers smcctl when it is leaving.
    static std::string socket_of(const std::string& control_socket, unsigned number);
    // Those at which somebody answers.
    static std::vector<std::string> leaving(const std::string& control_socket);

 private:
    Instance(std::string control_socket, unsigned number, LockFile lock)
        : control_socket_(std::move(control_socket)), number_(number), lock_(std::move(lock)) {}
    std::string control_socket_;
    unsigned number_;
    LockFile lock_;
};

}  // namespace smc::upgrade
