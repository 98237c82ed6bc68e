// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What this kernel does with sockets in a sockmap, tried with the real programs on real pairs, in a network namespace
// of its own: where it does not do as TCP does, and what keeps applications from ever seeing that.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "agent/bypass/bypass.h"

namespace smc::bypass {

struct Finding {
    std::string what;
    std::string difference;  // empty: as TCP does
    std::string excluded;    // how no application comes to see the difference; empty: it might
};

struct Verdict {
    std::vector<Finding> findings;
    std::string obstacle;  // why `auto` is off; empty: it is on
    bool lasts = false;    // it is for want of a guard: another probe would say the same
    std::chrono::microseconds took{0};
};

// Takes some tens of milliseconds. `moment`: how long bytes may be on their way. What differs is tried again, twice: a
// machine that stands still is no property of its kernel.
[[nodiscard]] Verdict probe(Bypass& bypass, std::chrono::milliseconds moment);

}  // namespace smc::bypass
