// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The agent that this one starts to take its place: the program that is installed now, with the same arguments.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "os/result.h"
#include "os/unique_fd.h"

namespace smc::upgrade {

class Successor {
 public:
    // It runs from here on; it may still find that it cannot serve, and end. It gets a descriptor to say when it does.
    static Result<Successor> start();

    [[nodiscard]] pid_t pid() const { return pid_; }
    // It has said so.
    [[nodiscard]] bool serves();
    struct End {
        bool in_order;  // it was told to
        std::string how;
    };
    // Once. Nothing: it runs.
    [[nodiscard]] std::optional<End> ended() const;

 private:
    Successor(pid_t pid, UniqueFd ready) : pid_(pid), ready_(std::move(ready)) {}
    pid_t pid_;
    UniqueFd ready_;
    bool serves_ = false;
};

// Tells systemd, if that has started this one, that the service's main process is another one from here on.
void tell_service_manager(pid_t main_process);

}  // namespace smc::upgrade
