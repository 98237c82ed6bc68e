// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tries what this kernel does with sockets in a sockmap, with the real programs on real pairs in a network namespace of
// their own: where it differs from TCP, and what keeps applications from ever seeing the difference.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "agent/bypass/bypass.h"

namespace smc::bypass {

struct Finding {
    std::string what;
    std::string difference;  // from TCP; empty: none
    std::string excluded;    // why no application sees the difference; empty: it might
};

struct Verdict {
    std::vector<Finding> findings;
    std::string obstacle;  // why `auto` is off; empty: it is on
    bool lasts = false;    // a guard is missing: another probe would find the same
    std::chrono::microseconds took{0};
};

// Takes some tens of milliseconds. `moment`: how long bytes may be under way. A difference is tried twice more, because
// it may come from a machine that was stalled.
[[nodiscard]] Verdict probe(Bypass& bypass, std::chrono::milliseconds moment);

}  // namespace smc::bypass
