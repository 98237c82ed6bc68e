// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The bypass, round after round: its turn, a walk through the namespaces in which somebody is to be enrolled, and a
// look at connection tracking.
#pragma once

#include <asio/io_context.hpp>

#include "agent/bypass/bypass.h"
#include "agent/bypass/conntrack_watch.h"
#include "agent/loop/background.h"
#include "agent/netns/namespaces.h"

namespace smc::bypass {

class Rounds {
 public:
    Rounds(asio::io_context& io, Bypass& bypass, const Namespaces& namespaces)
        : bypass_(bypass), namespaces_(namespaces), thread_(io) {}

    // Four times a second.
    void come_round();

 private:
    void watch_conntrack();
    void look(std::vector<Bypass::Listed> members);
    template <class Work, class Then>
    bool walk(Work work, Then then);

    Bypass& bypass_;
    const Namespaces& namespaces_;
    ConntrackWatch conntrack_;  // used on the other thread
    unsigned rounds_ = 0;
    bool walking_ = false;
    loop::Background thread_;  // goes first: it uses the others
};

}  // namespace smc::bypass
