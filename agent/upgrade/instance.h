// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Agents with the same control socket that run at the same time: one serves, the others are leaving and keep their
// connections. Each instance has a number of its own, which tells apart what the instances pin and attach to devices.
#pragma once

#include <string>
#include <vector>

#include "os/lock_file.h"

namespace smc::upgrade {

class Instance {
 public:
    static constexpr unsigned kMost = 8;

    // Takes the lowest free number. EBUSY: none is free.
    static Result<Instance> take(const std::string& control_socket);

    [[nodiscard]] unsigned number() const { return number_; }
    // The numbers that no other agent holds, the own one included. Pins with these numbers were left by killed agents;
    // those agents' sockets are removed here. Call it only with the control socket's lock held; otherwise another agent
    // may be about to take one of these numbers.
    [[nodiscard]] std::vector<unsigned> clear_deserted() const;

    // Takes the number's lock file again if somebody has deleted it: otherwise an agent that starts could take the
    // number, and remove this one's pins. True: it did so. EBUSY: another agent has the number by now.
    Result<bool> restore();

    // The socket on which the agent with that number answers smcctl while it is leaving.
    static std::string socket_of(const std::string& control_socket, unsigned number);
    // The sockets of the agents that are leaving.
    static std::vector<std::string> leaving(const std::string& control_socket);

 private:
    Instance(std::string control_socket, unsigned number, LockFile lock)
        : control_socket_(std::move(control_socket)), number_(number), lock_(std::move(lock)) {}
    std::string control_socket_;
    unsigned number_;
    LockFile lock_;
};

}  // namespace smc::upgrade
