// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/session/client.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace smc::session {

namespace {

// Linux waits 1 s for the answer to a SYN, then 2 s. The server waits longer for its Confirm (RFC 7609 asks for no
// time).
constexpr std::chrono::milliseconds kTwoRetransmissions{3500};

}  // namespace

Actions Client::start(TimePoint deadline, bool answered) {
    deadline_ = deadline;
    answered_ = answered;
    return {Connect{}};
}

Actions Client::connected(PeerOption option, clc::Means means, TimePoint now) {
    if (state_ != State::kConnecting) {
        return {};
    }
    if (option == PeerOption::kPresent || option == PeerOption::kAgent) {
        peer_agent_ = option == PeerOption::kAgent;
        state_ = State::kNegotiating;
        if (!means.any()) {
            return let_go_and_learn(Reason::kNoDevice, {});
        }
        handshake_.emplace(node_, std::move(means));
        return translate(handshake_->start(now));
    }
    const Reason reason = option == PeerOption::kEchoed  ? Reason::kPeerEchoes
                          : option == PeerOption::kTaken ? Reason::kOptionTaken
                                                         : Reason::kPeerNoSmc;
    return let_go(reason, {}, {lesson_of_connecting(reason)});
}

Actions Client::connect_failed(int error) {
    if (state_ != State::kConnecting) {
        return {};
    }
    return let_go(Reason::kConnectFailed, std::generic_category().message(error),
                  {lesson_of_connecting(Reason::kConnectFailed)});
}

// Translates the handshake's actions into those of the session.
Actions Client::translate(clc::Actions from) {
    Actions out;
    for (auto& action : from) {
        if (auto* send = std::get_if<clc::Send>(&action)) {
            out.push_back(SendClc{send->message});
        } else if (auto* attach = std::get_if<clc::AttachDmb>(&action)) {
            smcd_ = attach->peer;
            out.push_back(AttachDmb{attach->peer});
        } else if (auto* prepare = std::get_if<clc::PrepareRmbe>(&action)) {
            out.push_back(JoinGroup{prepare->peer, handshake_->next_deadline()});
        } else if (auto* await = std::get_if<clc::AwaitLink>(&action)) {
            out.push_back(AwaitLink{await->peer});
        } else if (auto* finish = std::get_if<clc::Finish>(&action)) {
            const auto more = negotiated(std::move(finish->outcome));
            out.insert(out.end(), more.begin(), more.end());
        }
    }
    return out;
}

Actions Client::negotiated(clc::Outcome outcome) {
    outcome_ = std::move(outcome);
    if (outcome_.kind == clc::Outcome::Kind::kSmcD) {
        // From the Confirm on the server counts on this group, whatever becomes of this connection.
        smcd_groups_.establish(group::key_of(kServer, outcome_.smcd), outcome_.smcd.host_name);
    }
    if (outcome_.is_smc()) {
        return application_ ? run() : finish_connect({});
    }
    const bool in_sync = outcome_.reason != Reason::kOutOfSync && !outcome_.peer_out_of_sync;
    const bool falls_back = outcome_.kind == clc::Outcome::Kind::kFallBack;
    Actions actions{GiveBack{outcome_}};
    if (in_sync) {
        actions.push_back(lesson(outcome_.reason));
    }
    if (falls_back && !peer_agent_) {
        return application_ ? run_on_tcp(std::move(actions)) : finish_connect(std::move(actions));
    }
    if (falls_back && !clc_closed_ && !application_) {
        state_ = State::kLeaving;
        return actions;
    }
    return let_go(outcome_.reason, outcome_.detail, std::move(actions));
}

Actions Client::finish_connect(Actions actions) {
    state_ = State::kFinishing;
    actions.push_back(FinishConnect{});
    return actions;
}

Actions Client::run_on_tcp(Actions actions) {
    state_ = State::kDone;
    actions.push_back(RunOnTcp{outcome_});
    return actions;
}

Actions Client::run() {
    state_ = State::kDone;
    return {RememberServer{RememberServer::As::kCapable}, Run{outcome_}};
}

// S1.
Actions Client::let_go(Reason reason, std::string detail, Actions actions) {
    state_ = State::kDone;
    const ResetClc reset{last_word(reason)};
    if (application_) {
        actions.push_back(reset);
        actions.push_back(Refuse{reason, std::move(detail)});
        return actions;
    }
    outcome_.kind = clc::Outcome::Kind::kFallBack;
    outcome_.reason = reason;
    outcome_.detail = std::move(detail);
    actions.push_back(reset);
    actions.push_back(LeaveToTcp{outcome_});
    return actions;
}

Actions Client::let_go_and_learn(Reason reason, std::string detail, Actions actions) {
    actions.push_back(lesson(reason));
    return let_go(reason, std::move(detail), std::move(actions));
}

RememberServer Client::lesson(Reason reason) const {
    const bool of_the_moment = reason == Reason::kPeerClosed || reason == Reason::kFabric ||
                               reason == Reason::kBudget || reason == Reason::kHandshakeTimeout;
    // Nothing about the server's SMC follows from a leg that could not be connected, a link that went or was not there
    // yet, or a server's application that refuses this one connection. The server is only paused.
    const Reason why = reason == Reason::kPeerDeclined ? outcome_.peer_reason : reason;
    const bool links_change = why == Reason::kNoActiveLink || why == Reason::kRmbNotRegistered;
    const bool refused = reason == Reason::kPeerDeclined && why == Reason::kServerRefused;
    const bool pause = reason == Reason::kNoLeg || links_change || (peer_agent_ && (of_the_moment || refused));
    return {pause ? RememberServer::As::kPause : RememberServer::As::kNotNow, reason};
}

RememberServer Client::lesson_of_connecting(Reason reason) const {
    return {answered_ ? RememberServer::As::kPause : RememberServer::As::kUnknown, reason};
}

Actions Client::give_back() {
    if (outcome_.is_smc()) {
        return {GiveBack{outcome_}};
    }
    const bool has_confirm = !std::holds_alternative<std::monostate>(held_confirm_);
    return state_ == State::kNegotiating || has_confirm ? Actions{GiveBack{}} : Actions{};
}

// By a Decline a server learns that what it has set aside was never used (C.1). A server without an agent would go on
// with TCP, and let its application accept a connection that is reset at once.
std::optional<clc::Message> Client::last_word(Reason reason) {
    const bool due = peer_agent_ && !clc_closed_ && !std::holds_alternative<std::monostate>(held_confirm_);
    return due ? handshake_->give_up(reason) : std::nullopt;
}

Actions Client::clc_message(wire::Bytes message, TimePoint) {
    return state_ == State::kNegotiating ? translate(handshake_->message(message)) : Actions{};
}

Actions Client::clc_fault(const Fault& fault, TimePoint) {
    return state_ == State::kNegotiating ? translate(handshake_->fault(fault)) : Actions{};
}

Actions Client::clc_closed(TimePoint) {
    clc_closed_ = true;
    if (state_ == State::kLeaving) {
        return let_go(outcome_.reason, outcome_.detail);
    }
    if (state_ != State::kNegotiating || handshake_->state() == clc::ClientHandshake::State::kLinking) {
        return {};  // the peer of a short connection may close it before this side hears that the link is ready
    }
    return translate(handshake_->peer_closed());
}

// The handshake may be done already, if this message was its last.
Actions Client::clc_not_sent(TimePoint) {
    return state_ == State::kNegotiating ? translate(handshake_->peer_closed())
                                         : negotiated({.reason = Reason::kPeerClosed});
}

// This side's DMB is registered only now: it would be of no use if the server's could not be attached.
Actions Client::dmb_attached(TimePoint) {
    return state_ == State::kNegotiating ? Actions{RegisterDmb{smcd_.gid, smcd_.chid}} : Actions{};
}

Actions Client::dmb_not_attached(Reason reason, std::string detail, TimePoint now) {
    return dmb_refused(reason, std::move(detail), now);
}

Actions Client::dmb_registered(const clc::LocalDmb& own, TimePoint) {
    if (state_ != State::kNegotiating) {
        return {};
    }
    const bool in_sync = smcd_.first_contact || smcd_groups_.find(group::key_of(kServer, smcd_)) != nullptr;
    if (!in_sync) {
        return translate(handshake_->attached(own, in_sync));
    }
    held_confirm_ = own;
    return finish_connect({});
}

Actions Client::dmb_refused(Reason reason, std::string detail, TimePoint) {
    return state_ == State::kNegotiating ? translate(handshake_->attach_failed(reason, std::move(detail))) : Actions{};
}

Actions Client::joined(const clc::LocalRmbe& own, TimePoint now) {
    if (state_ != State::kNegotiating) {
        return {};
    }
    // RoCE may not work between these two nodes: until the link is confirmed, the application can still go to TCP.
    if (own.first_contact) {
        return translate(handshake_->rmbe_ready(own, now));
    }
    held_confirm_ = own;
    return finish_connect({});
}

Actions Client::join_refused(group::Refusal refusal, std::string detail, TimePoint) {
    if (state_ != State::kNegotiating) {
        return {};
    }
    return translate(handshake_->prepare_failed(group::reason_of(refusal), std::move(detail)));
}

Actions Client::link_ready(TimePoint) {
    return state_ == State::kNegotiating ? translate(handshake_->link_ready()) : Actions{};
}

Actions Client::link_failed(Reason reason, std::string detail, bool may_decline, TimePoint) {
    if (state_ != State::kNegotiating) {
        return {};
    }
    // A server that has closed its end of the TCP connection reads no Decline.
    return translate(may_decline && !clc_closed_ ? handshake_->link_refused(reason, std::move(detail))
                                                 : handshake_->link_failed(reason, std::move(detail)));
}

Actions Client::confirm(TimePoint now) {
    state_ = State::kNegotiating;
    const auto half = std::exchange(held_confirm_, std::monostate{});
    const auto* dmb = std::get_if<clc::LocalDmb>(&half);
    return translate(dmb != nullptr ? handshake_->attached(*dmb, true)
                                    : handshake_->rmbe_ready(std::get<clc::LocalRmbe>(half), now));
}

// Linux at the server does not move a connection to another link before it has the Confirm, and then could not answer
// if the link has gone: its Decline is due instead.
Actions Client::leg_connected(TimePoint now, bool has_link) {
    if (state_ != State::kFinishing) {
        return {};
    }
    application_ = true;
    if (!has_link && !peer_agent_ && std::holds_alternative<clc::LocalRmbe>(held_confirm_)) {
        held_confirm_ = std::monostate{};
        state_ = State::kNegotiating;
        return translate(handshake_->prepare_failed(Reason::kNoActiveLink, "the link that the server named has gone"));
    }
    if (!std::holds_alternative<std::monostate>(held_confirm_)) {
        return confirm(now);
    }
    return outcome_.is_smc() ? run() : run_on_tcp({});
}

Actions Client::leg_late(AppState app, std::string detail, TimePoint now) {
    if (state_ != State::kFinishing) {
        return {};
    }
    if (app == AppState::kSynRecv && !std::exchange(leg_was_late_, true)) {
        deadline_ = std::max(deadline_, now + kTwoRetransmissions);
        return {};
    }
    if (leg_was_late_ && app == AppState::kSynSent) {
        app = AppState::kGone;  // it has answered the leg once
    }
    return app == AppState::kSynRecv && now < deadline_ ? Actions{} : leg_failed(app, std::move(detail));
}

Actions Client::leg_failed(AppState app, std::string detail) {
    if (state_ != State::kFinishing) {
        return {};
    }
    if (app == AppState::kSynSent) {
        return let_go_and_learn(Reason::kNoLeg, std::move(detail), give_back());
    }
    Actions actions = give_back();
    state_ = State::kDone;
    if (app == AppState::kSynRecv) {
        actions.push_back(lesson(Reason::kNoLeg));
    }
    if (app == AppState::kSynRecv || leg_was_late_) {
        actions.push_back(EndApplication{});  // also if it only seems to be gone
    }
    const Reason reason = app == AppState::kSynRecv ? Reason::kNoLeg : Reason::kApplicationGone;
    actions.push_back(ResetClc{last_word(reason)});
    actions.push_back(Refuse{reason, std::move(detail)});
    return actions;
}

Actions Client::tick(TimePoint now) {
    if (state_ == State::kLeaving && now >= deadline_) {
        return let_go(outcome_.reason, outcome_.detail);
    }
    if (state_ == State::kFinishing && leg_was_late_ && now >= deadline_) {
        return leg_failed(AppState::kSynRecv, "the application's answer to the leg did not arrive");
    }
    if (state_ != State::kDone && now >= deadline_) {
        return let_go_and_learn(Reason::kBudget, {}, give_back());
    }
    return state_ == State::kNegotiating ? translate(handshake_->tick(now)) : Actions{};
}

TimePoint Client::next_deadline() const {
    if (state_ == State::kDone) {
        return kNever;
    }
    return state_ == State::kNegotiating ? std::min(handshake_->next_deadline(), deadline_) : deadline_;
}

bool Client::listens() const {
    using Handshake = clc::ClientHandshake::State;
    if (state_ == State::kLeaving) {
        return !clc_closed_;
    }
    return state_ == State::kNegotiating && !clc_closed_ &&
           (handshake_->state() == Handshake::kAwaitAccept || handshake_->state() == Handshake::kLinking);
}

}  // namespace smc::session
