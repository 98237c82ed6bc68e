// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Port: what may have news and no descriptor that tells of them in time.
#pragma once

namespace smc {

class BusyPoll {
 public:
    virtual ~BusyPoll() = default;
    // From any engine's thread, each time round: next to nothing where there is no news, and never waits. News become
    // readable descriptors.
    virtual void look() = 0;
};

}  // namespace smc
