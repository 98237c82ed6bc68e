// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/session/server.h"

#include <algorithm>
#include <utility>

#include "smc/clc/framer.h"

namespace smc::session {

namespace {

void append(Actions& to, Actions from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

// Translates the handshake's actions into those of the session.
Actions Server::translate(clc::Actions from, TimePoint now) {
    Actions out;
    for (auto& action : from) {
        if (auto* send = std::get_if<clc::Send>(&action)) {
            out.push_back(SendClc{send->message});
        } else if (auto* create = std::get_if<clc::CreateDmb>(&action)) {
            out.push_back(RegisterDmb{create->peer, create->chid});
        } else if (auto* attach = std::get_if<clc::AttachDmb>(&action)) {
            out.push_back(AttachDmb{attach->peer});
        } else if (auto* prepare = std::get_if<clc::PrepareRmbe>(&action)) {
            // Connect the application first: other connections of this client wait for the link group.
            smcr_ = prepare->peer;
            if (application_) {
                append(out, application_connected(now));
            } else {
                out.push_back(ConnectApplication{});
            }
        } else if (auto* await = std::get_if<clc::AwaitLink>(&action)) {
            out.push_back(AwaitLink{await->peer});
        } else if (auto* finish = std::get_if<clc::Finish>(&action)) {
            append(out, negotiated(std::move(finish->outcome), now));
        }
    }
    return out;
}

Actions Server::negotiated(clc::Outcome outcome, TimePoint now) {
    outcome_ = std::move(outcome);
    if (outcome_.is_smc()) {
        const bool waits = outcome_.is_on_new_link() && peer_.announces;
        state_ = waits ? State::kAwaitingClient : State::kDone;  // S1
        deadline_ = waits ? now + (clc_closed_ ? node_.last_word : node_.step_timeout) : kNever;
        return waits ? Actions{AwaitClient{}} : Actions{Run{outcome_}};
    }
    if (outcome_.peer_out_of_sync) {
        smcd_groups_.drop(group::key_of(kServer, outcome_.smcd));
    }
    Actions actions{GiveBack{outcome_}};
    if (peer_.has_agent && outcome_.kind == clc::Outcome::Kind::kFallBack) {
        state_ = State::kDone;
        actions.push_back(LeaveToTcp{outcome_});
        return actions;
    }
    if (outcome_.kind == clc::Outcome::Kind::kTerminate) {
        return refuse(outcome_.reason, outcome_.detail, std::move(actions));
    }
    if (application_) {
        state_ = State::kDone;  // S1
        actions.push_back(RunOnTcp{outcome_});
        return actions;
    }
    state_ = State::kConnecting;
    deadline_ = now + node_.step_timeout;
    actions.push_back(ConnectApplication{});
    return actions;
}

Actions Server::refuse(Reason reason, std::string detail, Actions actions) {
    state_ = State::kDone;  // S1
    actions.push_back(ResetClc{});
    actions.push_back(Refuse{reason, std::move(detail)});
    return actions;
}

Actions Server::begin(TimePoint now) {
    return peer_.no_option == Reason::kNone
               ? Actions{}
               : join_application(
                     peer_.no_option,
                     "the client did not see option 254 in the SYN-ACK; its application is connected by TCP", now);
}

// Only before anything was agreed on. A client's agent would have refused a SYN-ACK without the option.
bool Server::may_have_lost_answer() const {
    return state_ == State::kNegotiating && !peer_.has_agent &&
           handshake_.state() == clc::ServerHandshake::State::kAwaitProposal;
}

Actions Server::join_application(Reason reason, std::string detail, TimePoint now) {
    outcome_ = {.kind = clc::Outcome::Kind::kFallBack, .reason = reason, .detail = std::move(detail)};
    state_ = State::kConnecting;
    deadline_ = now + node_.step_timeout;
    return {ConnectApplication{}};
}

bool Server::joins_application() const {
    return state_ == State::kConnecting &&
           (outcome_.reason == Reason::kAnswerLost || outcome_.reason == Reason::kOptionTaken);
}

Actions Server::clc_message(wire::Bytes message, TimePoint now) {
    if (joins_application()) {
        return refuse(Reason::kHandshakeTimeout, "a CLC message came too late: fallback to TCP has begun", {});
    }
    if (state_ == State::kAwaitingClient) {
        return refuse(Reason::kProtocolError, "unexpected CLC message after the handshake", {GiveBack{outcome_}});
    }
    return state_ == State::kNegotiating ? translate(handshake_.message(message, now), now) : Actions{};
}

Actions Server::clc_fault(const Fault& fault, TimePoint now) {
    if (state_ == State::kAwaitingClient) {
        return refuse(Reason::kProtocolError, fault.text(), {GiveBack{outcome_}});
    }
    if (may_have_lost_answer() && clc::is_no_clc(fault)) {
        return join_application(Reason::kAnswerLost, fault.text(), now);
    }
    return state_ == State::kNegotiating ? translate(handshake_.fault(fault), now) : Actions{};
}

Actions Server::clc_closed(TimePoint now, bool in_order) {
    clc_closed_ = true;
    if (state_ == State::kAwaitingClient) {
        deadline_ = std::min(deadline_, now + node_.last_word);
        return {};
    }
    if (in_order && may_have_lost_answer() && !clc_began_) {
        return join_application(Reason::kAnswerLost, "the client closed without sending a byte", now);
    }
    if (state_ != State::kNegotiating || handshake_.state() == clc::ServerHandshake::State::kLinking) {
        return {};  // the peer of a short connection may close it before this side hears that the link is ready
    }
    return translate(handshake_.peer_closed(), now);
}

// The handshake may be done already, if this message was its last.
Actions Server::clc_not_sent(TimePoint now) {
    return state_ == State::kNegotiating ? translate(handshake_.peer_closed(), now)
                                         : negotiated({.reason = Reason::kPeerClosed}, now);
}

Actions Server::dmb_registered(const clc::LocalDmb& own, TimePoint now) {
    if (state_ != State::kNegotiating) {
        return {};
    }
    dmb_ = own;
    return application_ ? dmb_ready(now) : Actions{ConnectApplication{}};
}

Actions Server::dmb_ready(TimePoint now) {
    const auto* group = smcd_groups_.find(group::key_of(kServer, handshake_.smcd_peer()));
    const clc::LocalDmb own = *std::exchange(dmb_, std::nullopt);
    return translate(handshake_.dmb_ready(own, group == nullptr, group != nullptr ? group->id : 0, now), now);
}

Actions Server::dmb_refused(Reason reason, std::string detail, TimePoint now) {
    return state_ == State::kNegotiating ? translate(handshake_.prepare_failed(reason, std::move(detail)), now)
                                         : Actions{};
}

Actions Server::dmb_attached(TimePoint now) {
    return state_ == State::kNegotiating ? translate(handshake_.attached(), now) : Actions{};
}

Actions Server::dmb_not_attached(Reason reason, std::string detail, TimePoint now) {
    return state_ == State::kNegotiating ? translate(handshake_.attach_failed(reason, std::move(detail)), now)
                                         : Actions{};
}

Actions Server::joined(const clc::LocalRmbe& own, TimePoint now) {
    return state_ == State::kNegotiating ? translate(handshake_.rmbe_ready(own, now), now) : Actions{};
}

Actions Server::join_refused(group::Refusal refusal, std::string detail, TimePoint now) {
    return dmb_refused(group::reason_of(refusal), std::move(detail), now);
}

Actions Server::link_ready(TimePoint now) {
    return state_ == State::kNegotiating ? translate(handshake_.link_ready(), now) : Actions{};
}

Actions Server::link_failed(Reason reason, std::string detail, bool may_decline, TimePoint now) {
    if (state_ != State::kNegotiating) {
        return {};
    }
    return translate(may_decline ? handshake_.link_refused(reason, std::move(detail))
                                 : handshake_.link_failed(reason, std::move(detail)),
                     now);
}

Actions Server::client_announced(bool aborts) {
    if (state_ != State::kAwaitingClient) {
        return {};
    }
    if (aborts) {
        return refuse(Reason::kPeerAborted, {}, {GiveBack{outcome_}});
    }
    state_ = State::kDone;  // S1
    return {Run{outcome_}};
}

Actions Server::application_connected(TimePoint now) {
    application_ = true;
    if (state_ == State::kConnecting) {
        state_ = State::kDone;
        return {RunOnTcp{outcome_}};
    }
    if (state_ != State::kNegotiating) {
        return {};
    }
    Actions out = translate(handshake_.application_ready(now), now);
    if (dmb_) {
        append(out, dmb_ready(now));
    } else if (smcr_) {
        // If joining fails, a Decline must reach the client before it gives up.
        const TimePoint deadline = handshake_.next_deadline() - node_.step_timeout / 4;
        out.push_back(JoinGroup{*std::exchange(smcr_, std::nullopt), deadline});
    }
    return out;
}

Actions Server::application_refused(std::string detail, TimePoint now) {
    if (state_ == State::kConnecting) {
        return refuse(Reason::kServerRefused, std::move(detail), {});
    }
    return state_ == State::kNegotiating
               ? translate(handshake_.application_refused(std::move(detail), peer_.has_agent), now)
               : Actions{};
}

Actions Server::tick(TimePoint now) {
    if (state_ == State::kConnecting && now >= deadline_) {
        return refuse(Reason::kServerRefused, "connecting to the server application timed out", {});
    }
    if (state_ == State::kAwaitingClient && now >= deadline_ + node_.late && !std::exchange(was_late_, true)) {
        deadline_ = now + node_.last_word;
        return {};
    }
    if (state_ == State::kAwaitingClient && now >= deadline_) {
        const Reason reason = clc_closed_ ? Reason::kPeerClosed : Reason::kHandshakeTimeout;
        return refuse(reason, "the client's agent did not say in time that its application is connected",
                      {GiveBack{outcome_}});
    }
    if (may_have_lost_answer() && !clc_began_) {
        if (now < next_deadline()) {
            return {};
        }
        if (now >= handshake_.next_deadline() + node_.late && !std::exchange(was_late_, true)) {
            // The Proposal may have come already: it is read before the next tick().
            silence_until_ = now + node_.last_word;
            return {};
        }
        return join_application(Reason::kAnswerLost, "no CLC Proposal came in time", now);
    }
    return state_ == State::kNegotiating ? translate(handshake_.tick(now), now) : Actions{};
}

TimePoint Server::next_deadline() const {
    return state_ == State::kNegotiating ? std::max(handshake_.next_deadline(), silence_until_)
           : state_ == State::kDone      ? kNever
                                         : deadline_;
}

bool Server::listens() const {
    using Handshake = clc::ServerHandshake::State;
    const Handshake state = handshake_.state();
    const bool expects =
        state == Handshake::kAwaitProposal || state == Handshake::kAwaitConfirm || state == Handshake::kLinking;
    return !clc_closed_ && (state_ == State::kAwaitingClient || (state_ == State::kNegotiating && expects));
}

}  // namespace smc::session
