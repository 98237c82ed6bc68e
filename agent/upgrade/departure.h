// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How an agent ends. When it is stopped, it may wait until its connections have ended. When another agent takes its
// place, it gives up what only one agent of a node can have, as soon as no connection is being set up; its connections
// stay with it, because their queue pairs and buffers belong to its process. The only I/O here is a timer, the
// successor, and a check whether the agent that asked this one to leave still exists. Control thread only.
//
// Invariants:
//   U1  At no time do two agents send requests, accept requests, listen in the same namespace, or drive the bypass: the
//       control socket's lock, which an agent needs for all of these, is given up last.
//   U2  An agent that is kReleased and has started its successor itself does not end before the successor serves, and
//       starts another one if the successor fails. A signal, or a successor that ends in order, ends this duty.
//   U3  A successor that was started here is killed if it does not ask to take over in time, or if neither it nor
//       another agent serves in time after that (Parts::successor).
#pragma once

#include <chrono>
#include <functional>
#include <optional>

#include "agent/loop/deadline.h"
#include "agent/upgrade/successor.h"

namespace smc::upgrade {

class Departure {
 public:
    struct Parts {
        asio::io_context& io;
        std::chrono::seconds stop_drain, upgrade_drain;
        std::chrono::milliseconds settle;     // how long to wait for settled()
        std::chrono::milliseconds successor;  // a successor that takes longer for its next step is killed
        std::function<std::size_t()> connections;
        std::function<bool()> settled;          // no connection is being set up
        std::function<bool()> somebody_serves;  // an agent has the control socket, after this one released it
        std::function<void()> changed;          // obstacle() returns something else now
        std::function<void()> release;          // gives up what only one agent of a node may have (U1)
        std::function<void()> over;             // called once: nothing is left to wait for
        std::function<bool()> hangs;            // the data path does: no connection will end by itself
        // An agent that has left and has no connections ends when the agent that asked it to leave is gone and no agent
        // has served for this long.
        std::chrono::milliseconds left_alone_after{30000};
        std::function<Result<Successor>()> start = [] { return Successor::start(); };
    };
    explicit Departure(Parts parts);

    // smcctl upgrade: starts the installed program, which then asks this agent to leave.
    Result<pid_t> upgrade();
    // Another agent takes this one's place. False: this one is leaving already, or has told that agent to end. `asker`:
    // process ID of the other agent, 0: not known; if that process ends before this agent has left, this one goes on
    // serving.
    bool leave(pid_t asker);
    // SIGTERM or SIGINT. A second signal ends the agent at once, and so does the first one if the drain time is 0.
    void signalled();

    // Why new connections are plain TCP; empty: a departure is not the reason.
    [[nodiscard]] const char* obstacle() const;
    // Whether this agent has given up what only one agent of a node can have.
    [[nodiscard]] bool released() const { return state_ == State::kReleased; }

 private:
    enum class State : std::uint8_t { kServing, kStopping, kSettling, kReleased };

    void look();
    Result<pid_t> start_successor();
    void watch_successor();
    void end_hung_successor();
    void settle();
    [[nodiscard]] bool is_over();
    [[nodiscard]] bool is_left_alone();

    Parts p_;
    State state_ = State::kServing;
    bool signalled_ = false;
    pid_t asker_ = 0;
    std::optional<Successor> successor_;
    bool started_successor_ = false;  // the next agent was started here, so no service manager ends this one
    bool successor_told_to_end_ = false;
    bool told_manager_ = false;              // that the successor serves
    TimePoint successor_deadline_ = kNever;  // U3: when the successor is killed
    TimePoint restart_at_ = kNever;          // when to start another successor, because the last one failed
    std::chrono::seconds pause_{1};
    TimePoint state_deadline_ = kNever;  // the end of what state_ waits for
    TimePoint stop_by_ = kNever;         // the end of the drain that a signal began
    TimePoint nobody_since_ = kNever;    // since when somebody_serves() has been false
    loop::Deadline look_;
};

}  // namespace smc::upgrade
