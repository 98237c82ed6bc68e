// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The agent that this one starts to take its place: the program that is installed now, with the same arguments.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "os/result.h"
#include "os/unique_fd.h"

namespace smc::upgrade {

class Successor {
 public:
    // Starts the successor. It may still find that it cannot serve, and end. It inherits a descriptor on which it
    // reports that it serves.
    static Result<Successor> start();
    // The same with another program. Adds the options of an agent that takes over to `arguments`.
    static Result<Successor> start(const std::string& program, std::vector<std::string> arguments);

    [[nodiscard]] pid_t pid() const { return pid_; }
    // Whether the successor has reported that it serves.
    [[nodiscard]] bool serves();
    struct End {
        bool in_order;  // exit code 0: it was told to end
        std::string how;
    };
    // How it ended, returned once. Nothing: it still runs.
    [[nodiscard]] std::optional<End> ended() const;
    // Tells it to end in order.
    void stop() const;
    // Kills it. ended() tells when it is gone.
    void kill() const;

 private:
    Successor(pid_t pid, UniqueFd ready) : pid_(pid), ready_(std::move(ready)) {}
    pid_t pid_;
    UniqueFd ready_;
    bool serves_ = false;
};

// Tells systemd, if it started this agent, that the service's main process is now `main_process`.
void tell_service_manager(pid_t main_process);

}  // namespace smc::upgrade
