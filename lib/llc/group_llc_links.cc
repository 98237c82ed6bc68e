// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How links are confirmed and added to a group.
#include <algorithm>

#include "smc/llc/group_llc.h"

namespace smc::llc {

using Adding = AddLinkFlow::State;

// --- CONFIRM LINK ---------------------------------------------------------------------------------------------------

void GroupLlc::on(Actions& actions, LinkLlc& link, const ConfirmLink& m, TimePoint now) {
    const bool first = awaits_confirm_link();
    if (!first && link.state != LinkLlc::State::kConfirming) {
        return violated(actions, link.terms.number, "unexpected CONFIRM LINK");
    }
    if (std::string wrong = link.confirm.on(m, terms_, link.terms, out(actions, link)); !wrong.empty()) {
        return first ? violated(actions, link.terms.number, std::move(wrong)) : adding_failed(actions, wrong, false);
    }
    link.state = LinkLlc::State::kUp;
    actions.push_back(LinkUp{link.terms.number, link.confirm.peer_id()});
    if (!first) {
        return added(actions);
    }
    if (terms_.max_links <= 1) {
        return;
    }
    if (terms_.server) {
        add_link_.want(now + terms_.reply_timeout);
        actions.push_back(WantLink{});
    } else {
        add_link_.await(now + std::min(terms_.second_link, terms_.reply_timeout));
    }
}

void GroupLlc::added(Actions& actions) {
    add_link_.done();
    actions.push_back(AddLinkOver{true, false});
}

// --- ADD LINK -------------------------------------------------------------------------------------------------------

bool GroupLlc::may_offer_link() const {
    if (!terms_.server || terms_.max_links <= 1 || carrier() == nullptr) {
        return false;
    }
    const bool wanted = add_link_.state() == Adding::kWanted;
    return (state_ == State::kForming && wanted) ||
           (state_ == State::kActive && !changing() && !delete_link_.wants() && !own_rmbs_.under_way());
}

Actions GroupLlc::offer_link(const LinkTerms& own, const RoceGid& target, TimePoint now) {
    Actions actions;
    const LinkLlc* over = carrier();
    if (!may_offer_link()) {
        actions.push_back(
            LinkGone{own.number, "a link cannot be offered now: another exchange is under way, or no link is up"});
        actions.push_back(AddLinkOver{});
        return actions;
    }
    peer_rmbs_.forget_link(own.number);  // from an earlier link with this number
    add_link_.offer(own, target, own_rmbs_.pairs(over->terms.number, own.number), out(actions, *over), reply_by(now));
    return actions;
}

Actions GroupLlc::no_link(TimePoint now) {
    Actions actions;
    if (add_link_.state() == Adding::kWanted) {
        add_link_.done();
        actions.push_back(AddLinkOver{false, true});
    }
    proceed(actions, now);
    return actions;
}

namespace {

void refuse(const AddLink& request, const LinkOut& out) {
    AddLinkFlow answer;
    answer.choose(request, out.link, kNever);
    answer.reject(AddLinkReason::kNoAlternatePath, out);
}

}  // namespace

// The client has not connected its queue pair in time. A server takes silence for a failure of the link by which it
// sent ADD LINK.
void GroupLlc::choose_too_late(Actions& actions) {
    if (const auto over = links_.find(add_link_.carrier()); over != links_.end()) {
        refuse(add_link_.request(), out(actions, over->second));
    }
    adding_failed(actions, "connecting the queue pair took too long", true);
}

void GroupLlc::on(Actions& actions, LinkLlc& link, const AddLink& m, TimePoint now) {
    if (m.reply) {
        return on_add_link_reply(actions, link, m, now);
    }
    if (terms_.server) {
        // Version 1: the client has another port. That is ignored while a link is being added; a deletion that is under
        // way goes first (section 3.5.5.3.2).
        if (!add_link_.under_way() && state_ == State::kActive) {
            actions.push_back(LinkWanted{{m.gid.normalised()}});
        }
        return;
    }
    asked_ = kNever;  // SMC v2.1, REQUEST ADD LINK, note 7
    const bool first = state_ == State::kForming;
    const bool idle = add_link_.state() == Adding::kIdle || add_link_.state() == Adding::kAwaited;
    if (!idle || state_ == State::kEnding || terms_.max_links <= 1 || links_.contains(m.link_number)) {
        return refuse(m, out(actions, link));
    }
    peer_rmbs_.forget_link(m.link_number);
    // Sooner than an agent at the server stops waiting for the answer.
    add_link_.choose(m, link.terms.number,
                     now + (first ? std::min(terms_.second_link, terms_.reply_timeout) : terms_.reply_timeout));
    actions.push_back(LinkOffered{m.link_number, link.terms.number, add_link_.terms().peer,
                                  m.large ? m.large->target_gid.normalised() : RoceGid{}});
}

void GroupLlc::on_add_link_reply(Actions& actions, const LinkLlc& link, const AddLink& m, TimePoint now) {
    if (add_link_.state() != Adding::kOffered || link.terms.number != add_link_.carrier()) {
        // No offer awaits this reply. Linux accepts a link first, and rejects it if it then cannot set it up; CONFIRM
        // LINK fails in that case. A client that accepts too late waits for CONFIRM LINK: Linux lets no RMB be
        // confirmed or deleted meanwhile, and DELETE LINK ends that.
        const bool ours = add_link_.under_way() && add_link_.number() == m.link_number;
        if (terms_.server && state_ == State::kActive && !m.rejected && !ours && !links_.contains(m.link_number)) {
            delete_link_.want({m.link_number, DeleteLinkReason::kLostPath, false});
        }
        return;
    }
    if (m.rejected) {
        // Linux knows no other reason than this one, and in version 2 writes the message's length over it.
        const bool no_path =
            m.reason == AddLinkReason::kNoAlternatePath || (m.version >= 2 && m.reason == AddLinkReason::kNone);
        return adding_failed(actions, "the client rejected ADD LINK: " + text(m.reason), no_path);
    }
    if (!add_link_.on_reply(m, out(actions, link), reply_by(now))) {
        return adding_failed(actions, "the reply to ADD LINK has a wrong link number or MTU", false);
    }
    connect_or_go_on(actions, now);
}

void GroupLlc::on(Actions& actions, LinkLlc& link, const AddLinkContinuation& m, TimePoint now) {
    const bool expected = add_link_.state() == Adding::kExchanging && link.terms.number == add_link_.carrier() &&
                          m.reply == terms_.server;
    if (!expected) {
        return;
    }
    const bool holds_up = state_ == State::kForming && !terms_.server;
    if (!add_link_.on(m, out(actions, link), holds_up ? add_link_.deadline() : reply_by(now))) {
        const std::uint8_t over_link = add_link_.carrier();
        const char* why = "ADD LINK CONTINUATION has a wrong number of RKeys or link number";
        // C.7.1: as if the link had failed.
        adding_failed(actions, why, false);
        return lose(actions, over_link, why);
    }
    learn(actions);
    connect_or_go_on(actions, now);
}

// Both sides have told all their tokens: the server connects its queue pair.
void GroupLlc::connect_or_go_on(Actions& actions, TimePoint now) {
    if (add_link_.state() != Adding::kConnecting) {
        return;
    }
    if (state_ == State::kForming) {
        add_link_.connecting(now + terms_.second_link);
    }
    learn(actions);
    actions.push_back(LinkAccepted{add_link_.number(), add_link_.terms().peer});
}

// Records how the peer's RMBs are reached over the new link. Linux names RMBs that it never told of; they are ignored.
void GroupLlc::learn(Actions& actions) {
    for (const RTokenPair& pair : add_link_.take_pairs()) {
        if (const RTokenSet* rmb = peer_rmbs_.pair(add_link_.carrier(), add_link_.number(), pair)) {
            actions.push_back(PeerRmb{*rmb});
        }
    }
}

// True if another link joins the same two ports (C.7.1).
bool GroupLlc::would_be_parallel(const LinkTerms& terms) const {
    return std::ranges::any_of(links_, [&](const auto& entry) {
        const LinkLlc& other = entry.second;
        return other.terms.number != terms.number && other.state != LinkLlc::State::kDown &&
               other.terms.own.gid.normalised() == terms.own.gid.normalised() &&
               other.terms.peer.gid.normalised() == terms.peer.gid.normalised();
    });
}

Actions GroupLlc::link_connected(std::uint8_t number, TimePoint now) {
    Actions actions;
    if (add_link_.state() != Adding::kConnecting || add_link_.number() != number) {
        return actions;
    }
    if (would_be_parallel(add_link_.terms())) {
        adding_failed(actions, "another link already joins the same two ports", true);
        proceed(actions, now);
        return actions;
    }
    LinkLlc& link = links_[number];
    link.terms = add_link_.terms();
    link.little_endian = links_.at(add_link_.carrier()).little_endian;
    add_link_.confirming(state_ == State::kForming ? add_link_.deadline() : now + 2 * terms_.reply_timeout);
    link.confirm.start(terms_, link.terms, out(actions, link), now);
    return actions;
}

Actions GroupLlc::accept_link(const LinkTerms& own, TimePoint now) {
    Actions actions;
    const auto over = links_.find(add_link_.carrier());
    if (add_link_.state() != Adding::kChoosing || add_link_.number() != own.number || over == links_.end()) {
        actions.push_back(LinkGone{own.number, "accepted too late: the offer of the server has expired"});
        return actions;
    }
    add_link_.accept(own, own_rmbs_.pairs(add_link_.carrier(), own.number), out(actions, over->second),
                     state_ == State::kForming ? confirmed_by(now) : now + 3 * terms_.reply_timeout);
    learn(actions);
    LinkLlc& link = links_[own.number];
    link.terms = add_link_.terms();
    link.little_endian = over->second.little_endian;
    // The server's CONFIRM LINK may come before the last of its tokens.
    GroupTerms awaiting = terms_;
    awaiting.server = false;
    link.confirm.start(awaiting, link.terms, out(actions, link), now);
    return actions;
}

Actions GroupLlc::reject_link(AddLinkReason reason, TimePoint now) {
    Actions actions;
    const auto over = links_.find(add_link_.carrier());
    if (add_link_.state() == Adding::kChoosing && over != links_.end()) {
        add_link_.reject(reason, out(actions, over->second));
        actions.push_back(AddLinkOver{false, reason == AddLinkReason::kNoAlternatePath});
    }
    proceed(actions, now);
    return actions;
}

// The attempt to add a link has failed. A peer that counts on the link is told by DELETE LINK (C.7.1); at first contact
// the peer must acknowledge that before data flows (section 3.5.1.6.2).
void GroupLlc::adding_failed(Actions& actions, const std::string& why, bool unlikely) {
    const Adding state = add_link_.state();
    const std::uint8_t number = add_link_.number();
    const bool told = add_link_.peer_counts_on_it();
    add_link_.done();
    if (state == Adding::kOffered || state == Adding::kChoosing || told) {
        links_.erase(number);
        own_rmbs_.forget_link(number);
        peer_rmbs_.forget_link(number);
        if (told) {
            delete_link_.want({number, DeleteLinkReason::kLostPath, false});
        }
        actions.push_back(LinkGone{number, why});
    }
    actions.push_back(AddLinkOver{false, unlikely});
}

bool GroupLlc::may_ask_for_link() const {
    return !terms_.server && terms_.max_links > 1 && state_ == State::kActive && !changing() && asked_ == kNever;
}

Actions GroupLlc::ask_for_link(const std::vector<RoceGid>& gids, const Mac& mac, TimePoint now) {
    Actions actions;
    const LinkLlc* link = carrier();
    if (!may_ask_for_link() || link == nullptr || gids.empty()) {
        return actions;
    }
    if (terms_.version < 2) {
        auto ask = out(actions, *link).request<AddLink>();  // it needs no answer
        ask.padded = true;
        ask.gid = gids.back();
        ask.mac = mac;
        out(actions, *link).send(ask);
        return actions;
    }
    auto ask = out(actions, *link).request<RequestAddLink>();
    for (const RoceGid& gid : gids) {
        ask.gid_list.push_back(gid);
    }
    asked_ = reply_by(now);
    out(actions, *link).send(ask);
    return actions;
}

// SMC v2.1, REQUEST ADD LINK, notes 5 and 6: a server acknowledges the request, whether it can add a link or not.
void GroupLlc::on(Actions& actions, LinkLlc& link, const RequestAddLink& m, TimePoint) {
    if (m.reply) {
        asked_ = kNever;
        return;
    }
    if (!terms_.server) {
        return;
    }
    RequestAddLink answer = LinkOut::reply(m);
    answer.gid_list.resize(0);
    out(actions, link).send(answer);
    std::vector<RoceGid> gids(m.gid_list.begin(), m.gid_list.end());
    actions.push_back(LinkWanted{std::move(gids)});
}

}  // namespace smc::llc
