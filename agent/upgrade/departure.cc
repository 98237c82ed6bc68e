// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/upgrade/departure.h"

#include "agent/log/log.h"

namespace smc::upgrade {

namespace {

constexpr auto kSettling = std::chrono::seconds(3);  // longer than fallback.budget_ms usually is
constexpr auto kSettlingLook = std::chrono::milliseconds(5);
constexpr auto kLook = std::chrono::milliseconds(100);

}  // namespace

Departure::Departure(Parts parts) : p_(std::move(parts)), look_(p_.io, [this] { look(); }) {}

Result<pid_t> Departure::upgrade() {
    if (state_ != State::kServing || successor_) {
        return Error{EALREADY, "starting another agent"};
    }
    auto started = Successor::start();
    if (!started) {
        return started.error();
    }
    successor_ = *started;
    log()->info("upgrade: started pid {}, which asks this agent to leave when it is ready", successor_->pid());
    look_.set_in(kLook);
    return successor_->pid();
}

bool Departure::leave() {
    if (state_ == State::kSettling || state_ == State::kReleased) {
        return false;
    }
    state_ = State::kSettling;
    started_it_ = successor_.has_value();
    until_ = loop::now() + kSettling;
    log()->info("leaving: another agent takes this one's place");
    p_.changed();
    look_.set_in(kSettlingLook);
    return true;
}

void Departure::signalled() {
    const auto patience = state_ == State::kServing ? p_.stop_patience : p_.upgrade_patience;
    const bool again = std::exchange(signalled_, true);
    if (again || patience.count() == 0 || (p_.connections() == 0 && state_ != State::kSettling)) {
        return p_.over();
    }
    log()->info("waiting for {} connections to end, {} s at most; another signal ends that", p_.connections(),
                patience.count());
    if (state_ == State::kServing) {
        state_ = State::kStopping;
        until_ = loop::now() + patience;
        p_.changed();
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
            return "another agent takes its place";
    }
    return "";
}

void Departure::look() {
    if (successor_) {
        if (const auto how = successor_->ended()) {
            log()->error("upgrade: pid {} ended, {}", successor_->pid(), *how);
            successor_.reset();
        }
    }
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

void Departure::settle() {
    if (!p_.settled() && loop::now() < until_) {
        return;
    }
    state_ = State::kReleased;
    until_ = loop::now() + p_.upgrade_patience;
    log()->info("left: {} connections stay until they end, {} s at most", p_.connections(),
                p_.upgrade_patience.count());
    if (successor_) {
        tell_service_manager(successor_->pid());
    }
    p_.release();
}

// One that nobody here has started comes with somebody who ends this one, and would start it again if it just ended.
bool Departure::is_over() const {
    switch (state_) {
        case State::kServing:
        case State::kSettling:
            return false;
        case State::kStopping:
            return p_.connections() == 0 || loop::now() >= until_;
        case State::kReleased:
            return loop::now() >= until_ || (p_.connections() == 0 && (signalled_ || started_it_));
    }
    return false;
}

}  // namespace smc::upgrade
