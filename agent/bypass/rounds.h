// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The bypass, round after round: its turn, and a walk through the namespaces in which somebody is to be enrolled.
#pragma once

#include <asio/io_context.hpp>

#include "agent/bypass/bypass.h"
#include "agent/loop/background.h"
#include "agent/netns/namespaces.h"

namespace smc::bypass {

class Rounds {
 public:
    Rounds(asio::io_context& io, Bypass& bypass, const Namespaces& namespaces)
        : bypass_(bypass), namespaces_(namespaces), walk_(io) {}

    // Four times a second.
    void come_round();

 private:
    Bypass& bypass_;
    const Namespaces& namespaces_;
    bool walking_ = false;
    loop::Background walk_;  // goes first: it uses the others
};

}  // namespace smc::bypass
