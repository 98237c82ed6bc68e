// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/upgrade/departure.h"

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "agent/log/log.h"
#include "os/clock.h"

namespace smc::upgrade {

namespace {

constexpr auto kSettlingLook = std::chrono::milliseconds(5);
constexpr auto kLook = std::chrono::milliseconds(100);
constexpr auto kLongestPause = std::chrono::seconds(60);

bool is_gone(pid_t process) {
    return process != 0 && ::kill(process, 0) != 0 && errno == ESRCH;
}

}  // namespace

Departure::Departure(Parts parts) : p_(std::move(parts)), look_(p_.io, [this] { look(); }) {}

Result<pid_t> Departure::upgrade() {
    if (successor_ && state_ == State::kServing) {
        return Error{EALREADY,
                     "starting another agent, while agent " + std::to_string(successor_->pid()) +
                         " has not asked to take over yet (it is ended after times.successor_ms and times.prepare_ms)"};
    }
    if (state_ != State::kServing) {
        return Error{EALREADY, "starting another agent, while this one is being stopped or replaced"};
    }
    const auto started = start_successor();
    if (started) {
        log()->info("upgrade: successor {} started: it asks this agent to leave when it is ready", *started);
        look_.set_in(kLook);
    }
    return started;
}

Result<pid_t> Departure::start_successor() {
    auto started = p_.start();
    if (!started) {
        return started.error();
    }
    successor_.emplace(std::move(*started));
    told_manager_ = successor_told_to_end_ = false;
    successor_deadline_ = os::now() + p_.successor;
    return successor_->pid();
}

bool Departure::leave(pid_t asker) {
    const bool was_told_to_end = successor_told_to_end_ && successor_ && successor_->pid() == asker;
    if (state_ == State::kSettling || state_ == State::kReleased || was_told_to_end) {
        return false;
    }
    state_ = State::kSettling;
    asker_ = asker;
    started_successor_ = successor_.has_value();
    state_deadline_ = os::now() + p_.settle;
    successor_deadline_ = state_deadline_ + p_.successor;
    log()->info("upgrade: another agent asks to take over: waiting for handshakes");
    p_.changed();
    look_.set_in(kSettlingLook);
    return true;
}

void Departure::signalled() {
    // A signal to an agent that serves, or that started its successor itself, means that the whole service stops. A
    // signal in any other state means that a supervisor ends this agent only, because another one has taken over.
    const auto timeout = state_ == State::kServing || started_successor_ ? p_.stop_drain : p_.upgrade_drain;
    const bool again = std::exchange(signalled_, true);
    restart_at_ = kNever;  // a signal means that no further successor is wanted
    const bool served = state_ == State::kServing;
    if (served) {
        state_ = State::kStopping;  // obstacle() has to say so from now on, even if this agent ends at once
        if (successor_) {
            successor_told_to_end_ = true;
            successor_->stop();  // it has not asked to take over yet, and would serve where nobody is to serve
        }
    }
    if (again || timeout.count() == 0 || p_.hangs() || (p_.connections() == 0 && state_ != State::kSettling)) {
        return p_.over();
    }
    log()->info("stop: waiting for {} connections to end: {} s at most, or until another signal", p_.connections(),
                timeout.count());
    stop_by_ = os::now() + timeout;
    if (served) {
        state_deadline_ = stop_by_;
        p_.changed();
    } else if (state_ == State::kReleased) {
        state_deadline_ = std::min(state_deadline_, stop_by_);
    }
    look_.set_in(kLook);
}

const char* Departure::obstacle() const {
    switch (state_) {
        case State::kServing:
            return "";
        case State::kStopping:
            return "it is being stopped";
        case State::kSettling:
        case State::kReleased:
            return "another agent takes over";
    }
    return "";
}

void Departure::look() {
    watch_successor();
    if (state_ == State::kSettling) {
        settle();
    }
    if (is_over()) {
        return p_.over();
    }
    if (state_ != State::kServing || successor_) {
        look_.set_in(state_ == State::kSettling ? kSettlingLook : kLook);
    }
}

void Departure::watch_successor() {
    if (successor_ && successor_->serves() && !std::exchange(told_manager_, true)) {
        pause_ = std::chrono::seconds(1);
        successor_deadline_ = kNever;
        tell_service_manager(successor_->pid());
    }
    end_hung_successor();
    if (const auto end = successor_ ? successor_->ended() : std::nullopt) {
        if (end->in_order || successor_told_to_end_) {
            log()->info("upgrade: successor {}: ended, as it was told to", successor_->pid());
        } else {
            log()->error("upgrade: successor {}: ended: {}", successor_->pid(), end->how);
        }
        successor_.reset();
        if (state_ == State::kReleased && !end->in_order && !signalled_) {
            restart_at_ = os::now() + pause_;
            pause_ = std::min<std::chrono::seconds>(pause_ * 2, kLongestPause);
        }
    }
    if (os::now() >= restart_at_ && p_.somebody_serves()) {
        restart_at_ = kNever;  // an agent that was not started here serves already
    } else if (os::now() >= restart_at_) {
        restart_at_ = kNever;
        if (const auto started = start_successor()) {
            log()->info("upgrade: successor {} started: the previous one failed", *started);
        } else {
            log()->error("upgrade: {}", started.error().text());
            restart_at_ = os::now() + kLongestPause;
        }
    }
}

void Departure::end_hung_successor() {
    if (!successor_ || os::now() < successor_deadline_) {
        return;
    }
    successor_deadline_ = kNever;
    if (state_ == State::kReleased && p_.somebody_serves()) {
        log()->info("upgrade: successor {}: goes on: a third agent took over from it before it served",
                    successor_->pid());
    } else {
        log()->error("upgrade: successor {}: killed: it has not {} in time (times.successor_ms and times.prepare_ms)",
                     successor_->pid(), state_ == State::kServing ? "asked to take over" : "begun to serve");
        successor_->kill();
    }
}

void Departure::settle() {
    if (is_gone(asker_)) {
        log()->warn("upgrade: agent {} has ended before it took over: this agent goes on serving", asker_);
        state_ = signalled_ ? State::kStopping : State::kServing;
        state_deadline_ = std::min<TimePoint>(stop_by_, os::now() + p_.stop_drain);
        return p_.changed();
    }
    if (!p_.settled() && os::now() < state_deadline_) {
        return;
    }
    state_ = State::kReleased;
    const TimePoint now = os::now();
    state_deadline_ = std::min<TimePoint>(stop_by_, now + p_.upgrade_drain);
    log()->info("upgrade: handed over; {} connections stay here, for {} s at most", p_.connections(),
                std::chrono::ceil<std::chrono::seconds>(std::max(state_deadline_, now) - now).count());
    p_.release();
}

bool Departure::is_over() {
    if (signalled_ && state_ != State::kSettling && p_.hangs()) {
        log()->error("stop: {} connections are reset: the data path stands still, so they cannot end by themselves",
                     p_.connections());
        return true;
    }
    switch (state_) {
        case State::kServing:
        case State::kSettling:
            return false;
        case State::kStopping:
            return p_.connections() == 0 || os::now() >= state_deadline_;
        case State::kReleased:
            break;
    }
    if (signalled_) {
        return p_.connections() == 0 || os::now() >= state_deadline_;
    }
    if (started_successor_) {  // U2
        const bool successor_serves = restart_at_ == kNever && (!successor_ || told_manager_);
        return successor_serves && (p_.connections() == 0 || os::now() >= state_deadline_);
    }
    // The service manager or container runtime that started the next agent also ends this one, and would restart it if
    // it ended by itself. If the next agent is gone and no other one serves, connections that are reset would gain
    // nothing.
    const bool is_replaced = !is_gone(asker_) || p_.somebody_serves();
    return (os::now() >= state_deadline_ && is_replaced) || is_left_alone();
}

// Whether the agent that took over is gone for good. If this one then ends, its service manager starts it again.
bool Departure::is_left_alone() {
    if (p_.connections() != 0 || !is_gone(asker_) || p_.somebody_serves()) {
        nobody_since_ = kNever;
    } else if (nobody_since_ == kNever) {
        nobody_since_ = os::now();
    }
    return nobody_since_ != kNever && os::now() - nobody_since_ >= p_.left_alone_after;
}

}  // namespace smc::upgrade
