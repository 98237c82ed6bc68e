// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/session/client.h"

#include <cerrno>
#include <system_error>

namespace smc::session {

namespace {

// From the release of the application's SYN to its leg: two packets on this host.
constexpr auto kLegTimeout = std::chrono::seconds(5);

}  // namespace

Actions Client::start() {
    return {Connect{true}};
}

Actions Client::connected(PeerOption option, std::optional<clc::RoceOffer> roce, TimePoint now) {
    if (state_ == State::kReconnecting) {
        return finish_connect({}, now);
    }
    if (state_ != State::kConnecting) {
        return {};
    }
    if (option == PeerOption::kPresent) {
        state_ = State::kNegotiating;
        handshake_.emplace(node_, std::move(roce));
        return translate(handshake_->start(now), now);
    }
    outcome_.reason = option == PeerOption::kEchoed ? Reason::kPeerEchoes : Reason::kPeerNoSmc;
    return finish_connect({RememberIncapable{outcome_.reason}}, now);
}

Actions Client::connect_failed(int error) {
    if (state_ != State::kConnecting && state_ != State::kReconnecting) {
        return {};
    }
    if (state_ == State::kConnecting && (error == ECONNRESET || error == EPIPE)) {
        outcome_.reason = Reason::kPeerClosed;
        return reconnect({});
    }
    return give_up(Reason::kConnectFailed, std::generic_category().message(error), {FailConnect{error}});
}

// What the handshake wants, in the session's words.
Actions Client::translate(clc::Actions from, TimePoint now) {
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
            const auto more = negotiated(std::move(finish->outcome), now);
            out.insert(out.end(), more.begin(), more.end());
        }
    }
    return out;
}

Actions Client::negotiated(clc::Outcome outcome, TimePoint now) {
    outcome_ = std::move(outcome);
    if (outcome_.kind == clc::Outcome::Kind::kSmcD) {
        // From the Confirm on the server counts on it, whatever becomes of this connection.
        smcd_groups_.establish(group::key_of(kServer, outcome_.smcd), outcome_.smcd.host_name);
    }
    if (outcome_.is_smc()) {
        return finish_connect({}, now);
    }
    Actions actions{GiveBack{outcome_}};
    if (outcome_.reason != Reason::kOutOfSync && !outcome_.peer_out_of_sync) {
        actions.push_back(RememberIncapable{outcome_.reason});
    }
    if (outcome_.kind == clc::Outcome::Kind::kTerminate) {
        return reconnect(std::move(actions));
    }
    return finish_connect(std::move(actions), now);
}

Actions Client::finish_connect(Actions actions, TimePoint now) {
    state_ = State::kFinishing;
    leg_deadline_ = now + kLegTimeout;
    actions.push_back(FinishConnect{});
    return actions;
}

Actions Client::reconnect(Actions actions) {
    state_ = State::kReconnecting;
    actions.push_back(ResetClc{});
    actions.push_back(Connect{false});
    return actions;
}

Actions Client::give_up(Reason reason, std::string detail, Actions actions) {
    if (outcome_.is_smc() || state_ == State::kNegotiating) {
        actions.push_back(GiveBack{outcome_.is_smc() ? outcome_ : clc::Outcome{}});
    }
    state_ = State::kDone;  // S1
    actions.push_back(ResetClc{});
    actions.push_back(Refuse{reason, std::move(detail)});
    return actions;
}

Actions Client::clc_message(wire::Bytes message, TimePoint now) {
    return state_ == State::kNegotiating ? translate(handshake_->message(message), now) : Actions{};
}

Actions Client::clc_fault(const Fault& fault, TimePoint now) {
    return state_ == State::kNegotiating ? translate(handshake_->fault(fault), now) : Actions{};
}

Actions Client::clc_closed(TimePoint now) {
    clc_closed_ = true;
    if (state_ != State::kNegotiating || handshake_->state() == clc::ClientHandshake::State::kLinking) {
        return {};  // a short connection may be closed by its peer before the news of its link is here
    }
    return translate(handshake_->peer_closed(), now);
}

// The handshake may have taken that message for its last word.
Actions Client::clc_not_sent(TimePoint now) {
    return state_ == State::kNegotiating ? translate(handshake_->peer_closed(), now)
                                         : negotiated({.reason = Reason::kPeerClosed}, now);
}

// The server's DMB first: without it there is no use for one of our own.
Actions Client::dmb_attached(TimePoint) {
    return state_ == State::kNegotiating ? Actions{RegisterDmb{smcd_.gid}} : Actions{};
}

Actions Client::dmb_not_attached(std::string detail, TimePoint now) {
    return dmb_refused(Reason::kFabric, std::move(detail), now);
}

Actions Client::dmb_registered(const clc::LocalDmb& own, TimePoint now) {
    if (state_ != State::kNegotiating) {
        return {};
    }
    const bool in_sync = smcd_.first_contact || smcd_groups_.find(group::key_of(kServer, smcd_)) != nullptr;
    return translate(handshake_->attached(own, in_sync), now);
}

Actions Client::dmb_refused(Reason reason, std::string detail, TimePoint now) {
    return state_ == State::kNegotiating ? translate(handshake_->attach_failed(reason, std::move(detail)), now)
                                         : Actions{};
}

Actions Client::joined(const clc::LocalRmbe& own, TimePoint now) {
    return state_ == State::kNegotiating ? translate(handshake_->rmbe_ready(own, now), now) : Actions{};
}

Actions Client::join_refused(group::Refusal refusal, std::string detail, TimePoint now) {
    if (state_ != State::kNegotiating) {
        return {};
    }
    return translate(handshake_->prepare_failed(group::reason_of(refusal), std::move(detail)), now);
}

Actions Client::link_ready(TimePoint now) {
    return state_ == State::kNegotiating ? translate(handshake_->link_ready(), now) : Actions{};
}

Actions Client::link_failed(Reason reason, std::string detail, bool, TimePoint now) {
    return state_ == State::kNegotiating ? translate(handshake_->link_failed(reason, std::move(detail)), now)
                                         : Actions{};
}

Actions Client::leg_arrived() {
    if (state_ != State::kFinishing) {
        return {};
    }
    state_ = State::kDone;  // S1
    return outcome_.is_smc() ? Actions{Run{outcome_}} : Actions{RunOnTcp{outcome_}};
}

Actions Client::leg_refused(std::string detail) {
    if (state_ != State::kFinishing) {
        return {};
    }
    return give_up(Reason::kInternal, std::move(detail), {FailConnect{ECONNREFUSED}});
}

Actions Client::application_gone() {
    return state_ == State::kDone ? Actions{} : give_up(Reason::kApplicationGone, {});
}

Actions Client::tick(TimePoint now) {
    if (state_ == State::kNegotiating) {
        return translate(handshake_->tick(now), now);
    }
    if (state_ == State::kFinishing && now >= leg_deadline_) {
        // Something drops local traffic; do not try again soon.
        return give_up(Reason::kInternal, "no local leg", {RememberIncapable{Reason::kInternal}});
    }
    return {};
}

TimePoint Client::next_deadline() const {
    switch (state_) {
        case State::kNegotiating:
            return handshake_->next_deadline();
        case State::kFinishing:
            return leg_deadline_;
        case State::kConnecting:    // TCP's own applies, and
        case State::kReconnecting:  // the application's connect() may end earlier
        case State::kDone:
            break;
    }
    return kNever;
}

bool Client::listens() const {
    using Handshake = clc::ClientHandshake::State;
    return state_ == State::kNegotiating && !clc_closed_ &&
           (handshake_->state() == Handshake::kAwaitAccept || handshake_->state() == Handshake::kLinking);
}

}  // namespace smc::session
