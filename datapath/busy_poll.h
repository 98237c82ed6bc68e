// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Port: a source of events that engines poll, because no descriptor reports its events in time.
#pragma once

namespace smc {

class BusyPoll {
 public:
    virtual ~BusyPoll() = default;
    // Called on any engine's thread in each iteration of its loop. Never waits, and costs next to nothing when nothing
    // has happened. If it finds an event for a task, it makes that task's descriptor readable.
    virtual void look() = 0;
};

}  // namespace smc
