// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How an agent goes. Stopped, it may wait until its connections have ended. If another agent takes its place, it gives
// up what only one of a node can have as soon as nobody is between a SYN and a first byte; the connections that it has
// stay with it, because their queue pairs and buffers do. No I/O but a timer and the successor; control thread only.
//
// Invariant:
//   U1  At no time do two agents ask, are asked, listen in the same namespace, or drive the bypass: what another one
//       needs for that, the control socket's lock, is given up last.
//   U2  An agent that has started its successor does not end before that serves, and starts another one if it fails.
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
        std::chrono::seconds stop_timeout, upgrade_timeout;
        std::chrono::milliseconds settle;  // for settled()
        std::function<std::size_t()> connections;
        std::function<bool()> settled;          // nobody is between a SYN and a first byte
        std::function<bool()> somebody_serves;  // has the control socket, when this one has released it
        std::function<void()> changed;          // obstacle() is another one
        std::function<void()> release;          // U1
        std::function<void()> over;             // once: there is nothing left to wait for
        // Who has left, and has nothing any more, ends when nobody has served for so long.
        std::chrono::milliseconds left_alone_after{30000};
    };
    explicit Departure(Parts parts);

    // smcctl upgrade: starts what is installed, which then asks this one to leave.
    Result<pid_t> upgrade();
    // Another agent takes this one's place. False: it is going already. `asker`: its process, 0: not known; if that has
    // gone meanwhile, this one goes on.
    bool leave(pid_t asker);
    // SIGTERM or SIGINT. The second one, or one without timeout, is the end.
    void signalled();

    // Why new connections are plain TCP; empty: not because of this.
    [[nodiscard]] const char* obstacle() const;
    // Another agent has what only one can have.
    [[nodiscard]] bool released() const { return state_ == State::kReleased; }

 private:
    enum class State : std::uint8_t { kServing, kStopping, kSettling, kReleased };

    void look();
    void watch_successor();
    void settle();
    [[nodiscard]] bool is_over();
    [[nodiscard]] bool is_left_alone();

    Parts p_;
    State state_ = State::kServing;
    bool signalled_ = false;
    pid_t asker_ = 0;
    std::optional<Successor> successor_;
    bool started_it_ = false;    // who takes the place was started here, so nobody else will end this one
    bool told_manager_ = false;  // of the successor that it serves
    TimePoint again_ = kNever;   // to start another one, because that one has failed
    std::chrono::seconds pause_{1};
    TimePoint until_ = kNever;
    TimePoint nobody_since_ = kNever;  // somebody_serves() was false
    loop::Deadline look_;
};

}  // namespace smc::upgrade
