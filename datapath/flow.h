// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One connection in the data path: what the engine drives and what others may read about it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "smc/reason.h"

namespace smc {

// Written by the engine's thread, read by anybody. Relaxed counters.
struct FlowStats {
    std::atomic<std::uint64_t> bytes_sent{0};      // application -> peer
    std::atomic<std::uint64_t> bytes_received{0};  // peer -> application
    std::atomic<std::uint64_t> signals{0};         // times the peer was signalled
    std::atomic<std::uint64_t> blocked{0};         // times the peer's buffer was full
    std::atomic<const char*> state{"ACTIVE"};      // names of RFC 7609 section 4.8, as smcss has them
};

// How a flow ended. kNone: in order, everything delivered both ways.
struct FlowEnd {
    std::uint64_t id = 0;
    Reason reason = Reason::kNone;
};

// Edge-triggered readiness for the flow's own use; `which` is the flow's name for the descriptor.
class Poller {
 public:
    struct Source {
        class Flow* flow = nullptr;
        int which = 0;
    };
    virtual ~Poller() = default;
    // EPOLLET is added. The source must live as long as the flow. False: out of memory or watches.
    virtual bool watch(int fd, std::uint32_t events, Source& source) = 0;
    // Needed where closing does not do it: the doorbell's open file is shared with the peer.
    virtual void unwatch(int fd) = 0;
};

class Flow {
 public:
    using TimePoint = std::chrono::steady_clock::time_point;

    Flow(std::uint64_t id, std::shared_ptr<FlowStats> counters)
        : stats(std::move(counters)), id_(id) {}
    Flow(const Flow&) = delete;
    Flow& operator=(const Flow&) = delete;
    virtual ~Flow() = default;

    [[nodiscard]] std::uint64_t id() const { return id_; }

    // Registers its descriptors. False: give up, the flow ends with kLimit.
    virtual bool start(Poller& poller) = 0;
    // Notes what happened; moving bytes is left to run().
    virtual void on_event(int which, std::uint32_t events) = 0;
    // Moves a bounded amount. True: more could be done right now, call again after the others.
    virtual bool run(TimePoint now) = 0;
    // Ends with an error at the application, whatever the state.
    virtual void abort(Reason reason) = 0;
    [[nodiscard]] virtual bool ended(FlowEnd& end) const = 0;
    // When to call run() although nothing happens; max() for never.
    [[nodiscard]] virtual TimePoint deadline() const { return TimePoint::max(); }

    const std::shared_ptr<FlowStats> stats;

 private:
    std::uint64_t id_;
};

}  // namespace smc
