// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The agent that this one starts to take its place: the program that is installed now, with the same arguments.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "os/result.h"

namespace smc::upgrade {

class Successor {
 public:
    // It runs from here on; it may still find that it cannot serve, and end.
    static Result<Successor> start();

    [[nodiscard]] pid_t pid() const { return pid_; }
    // How it ended, once: "exit code 2". Nothing: it runs.
    [[nodiscard]] std::optional<std::string> ended();

 private:
    explicit Successor(pid_t pid) : pid_(pid) {}
    pid_t pid_;
};

// Tells systemd, if that has started this one, that the service's main process is another one from here on.
void tell_service_manager(pid_t main_process);

}  // namespace smc::upgrade
