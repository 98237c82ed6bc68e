// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The order of exchanges, received messages and timeouts of a link group. Links are added in
// group_llc_links.cc, and deleted in group_llc_link_ends.cc.
#include "smc/llc/group_llc.h"

#include <algorithm>
#include <string>

namespace smc::llc {

namespace {

bool ends_all(const AnyMessage& message) {
    const auto* end = std::get_if<DeleteLink>(&message);
    return end != nullptr && end->all;
}

}  // namespace

LinkOut GroupLlc::out(Actions& actions, const LinkLlc& link) const {
    return {actions, link.terms.number, terms_.version, link.little_endian};
}

// The link that carries messages about the group: one that is up, otherwise one that is retired and still works.
const LinkLlc* GroupLlc::carrier() const {
    for (const auto wanted : {LinkLlc::State::kUp, LinkLlc::State::kRetired}) {
        for (const auto& [number, link] : links_) {
            if (link.state == wanted) {
                return &link;
            }
        }
    }
    return nullptr;
}

std::vector<std::uint8_t> GroupLlc::up() const {
    std::vector<std::uint8_t> out;
    for (const auto& [number, link] : links_) {
        if (link.state == LinkLlc::State::kUp) {
            out.push_back(number);
        }
    }
    return out;
}

TimePoint GroupLlc::reply_by(TimePoint now) const {
    return now + (state_ == State::kForming ? 1 : 2) * terms_.reply_timeout;
}

void GroupLlc::finish(Actions& actions, Over how) {
    if (state_ != State::kOver) {  // M3
        state_ = State::kOver;
        actions.push_back(std::move(how));
    }
}

// C.7.1: a client declines if CONFIRM LINK names another link than was agreed, or cannot be decoded. At the server it
// is too late for that: the client's CONFIRM LINK was its last message of the handshake. Once more than one link is up,
// only the link with the violation is lost.
void GroupLlc::violated(Actions& actions, std::uint8_t link, std::string how) {
    if (state_ == State::kForming || up().size() <= 1) {
        finish(actions, {Reason::kLlcViolation, std::move(how), !terms_.server && awaits_confirm_link()});
    } else {
        lose(actions, link, how);
    }
}

// The first link waits for CONFIRM LINK.
bool GroupLlc::awaits_confirm_link() const {
    return state_ == State::kForming && !links_.empty() && std::ranges::none_of(links_, [](const auto& entry) {
               return entry.second.state != LinkLlc::State::kConfirming;
           });
}

void GroupLlc::activate(Actions& actions) {
    if (state_ != State::kForming) {
        return;  // the group is active already, or is being ended meanwhile
    }
    const LinkLlc* first = carrier();
    if (first == nullptr) {
        return;
    }
    state_ = State::kActive;
    actions.push_back(Confirmed{first->confirm.eye_catchers()});
}

// Starts the next exchange, if none is under way: links before RKeys (section 3.5.5.3). M3: an active group whose last
// link is down or retired is over, whichever side took that link away.
void GroupLlc::proceed(Actions& actions, TimePoint now) {
    const LinkLlc* link = carrier();
    if (state_ == State::kActive && up().empty()) {
        finish(actions, {Reason::kLinkDown, "no link is left"});
    }
    if (link == nullptr || state_ == State::kOver || state_ == State::kEnding) {
        return;
    }
    if (delete_link_.wants() && !add_link_.under_way() && !own_rmbs_.under_way()) {
        delete_link_.begin(out(actions, *link), reply_by(now));
        return;
    }
    if (state_ == State::kForming) {
        if (!changing() && !awaits_confirm_link()) {
            activate(actions);
        } else {
            return;
        }
    }
    if (!changing()) {
        own_rmbs_.proceed(terms_, up(), out(actions, *link), now);
    }
}

Actions GroupLlc::start(const LinkTerms& terms, TimePoint now) {
    Actions actions;
    LinkLlc& link = links_[terms.number];
    link.terms = terms;
    link.test.heard(now);
    link.confirm.start(terms_, terms, out(actions, link), now);
    return actions;
}

Actions GroupLlc::message(std::uint8_t number, Bytes bytes, TimePoint now) {
    Actions actions;
    const auto it = links_.find(number);
    if (state_ == State::kOver || it == links_.end()) {
        return actions;
    }
    LinkLlc& link = it->second;
    link.test.heard(now);
    const auto decoded = decode(bytes);
    if (const auto* bad = std::get_if<Fault>(&decoded)) {
        if (bad->verdict == Verdict::kReject) {
            out(actions, link).send(rejection(bytes));
            if (add_link_.state() == AddLinkFlow::State::kAwaited) {  // that was the attempt at first contact
                add_link_.done();
                proceed(actions, now);
            }
        } else if (bad->verdict != Verdict::kIgnore) {
            violated(actions, number, bad->text());
        }
        return actions;
    }
    const auto& message = std::get<AnyMessage>(decoded);
    if (const unsigned version = header_of(message).version; version != terms_.version) {
        violated(actions, number, "an LLC message of version " + std::to_string(version));
        return actions;
    }
    if (!terms_.server && link.state == LinkLlc::State::kDown && !ends_all(message)) {
        return actions;  // C.7.1: the server is being told that this link has failed
    }
    link.little_endian = header_of(message).little_endian;
    std::visit([&](const auto& m) { on(actions, link, m, now); }, message);
    proceed(actions, now);
    return actions;
}

// At the server: the client has told all its RMBs for the link that is being added, and now confirms another RMB
// without that link. Sections 3.5.5.3.1 and 3.5.5.3.2 have the server refuse every CONFIRM RKEY while it adds or
// deletes a link, so that no RMB is without a link. Only this one is refused, because the others are complete: those
// that come before the client answers ADD LINK, or with the new link, or while a link is deleted. Linux does not ask
// again after a refusal: it would lose the connection that the RMB is for.
bool GroupLlc::lacks_added_link(const ConfirmRkey& m) const {
    return terms_.server && add_link_.peer_counts_on_it() &&
           std::ranges::none_of(m.others, [&](const auto& other) { return other.link_number == add_link_.number(); });
}

void GroupLlc::on(Actions& actions, LinkLlc& link, const ConfirmRkey& m, TimePoint now) {
    if (m.reply) {
        if (const auto confirmed = own_rmbs_.on_reply(m, now)) {
            actions.push_back(*confirmed);
        }
        return;
    }
    const RTokenSet* rmb = answer(m, peer_rmbs_, lacks_added_link(m), out(actions, link));
    if (rmb == nullptr) {
        return;
    }
    actions.push_back(PeerRmb{*rmb});
    for (const std::uint8_t number : up()) {
        if (!rmb->contains(number) && m.others.size() >= m.other_tokens) {
            lose(actions, number, "CONFIRM RKEY has no RKey for this link");  // C.7.1
            return;
        }
    }
}

void GroupLlc::on(Actions& actions, LinkLlc& link, const ConfirmRkeyContinuation& m, TimePoint) {
    if (!m.reply) {
        answer(m, out(actions, link));
    }
}

void GroupLlc::on(Actions& actions, LinkLlc& link, const DeleteRkey& m, TimePoint) {
    if (!m.reply) {
        for (RTokenSet& gone : answer(m, peer_rmbs_, out(actions, link))) {
            actions.push_back(PeerRmbGone{std::move(gone)});
        }
        return;
    }
    if (const auto deleted = own_rmbs_.on_reply(m)) {
        actions.push_back(*deleted);
    }
}

void GroupLlc::on(Actions& actions, LinkLlc& link, const TestLink& m, TimePoint) {
    if (!link.test.on(m, out(actions, link))) {
        violated(actions, link.terms.number, "TEST LINK came back with other data");
    }
}

Actions GroupLlc::confirm_rkey(RmbId rmb, TimePoint now) {
    Actions actions;
    own_rmbs_.confirm(rmb);
    proceed(actions, now);
    return actions;
}

Actions GroupLlc::delete_rkey(RmbId rmb, TimePoint now) {
    Actions actions;
    own_rmbs_.remove(rmb);
    proceed(actions, now);
    return actions;
}

Actions GroupLlc::end(DeleteLinkReason reason, TimePoint now) {
    Actions actions;
    if (state_ == State::kOver || state_ == State::kEnding) {
        return actions;
    }
    const LinkLlc* link = carrier();
    if (link == nullptr && links_.empty()) {
        return down("there is no link");
    }
    if (link == nullptr) {
        link = &links_.begin()->second;  // the first one, which is not confirmed yet
    }
    own_rmbs_.restart();
    delete_link_.restart();
    if (auto end = delete_link_.end(reason, terms_, out(actions, *link), now)) {
        finish(actions, std::move(*end));
    } else {
        state_ = State::kEnding;
        add_link_.done();
    }
    return actions;
}

Actions GroupLlc::down(std::string why) {
    Actions actions;
    // C.2: until CONFIRM LINK has come, either side may decline. Afterwards a Linux server runs the connection,
    // whatever becomes of ADD LINK, and reads no Decline any more.
    finish(actions, {Reason::kLinkDown, std::move(why), awaits_confirm_link()});
    return actions;
}

Actions GroupLlc::test(TimePoint now) {
    Actions actions;
    for (const std::uint8_t number : state_ == State::kActive ? up() : std::vector<std::uint8_t>{}) {
        LinkLlc& link = links_.at(number);
        link.test.ask(terms_, out(actions, link), now);
    }
    return actions;
}

void GroupLlc::heard(std::uint8_t number, std::uint64_t messages, TimePoint now) {
    const auto it = links_.find(number);
    if (it != links_.end() && it->second.messages != messages) {
        it->second.messages = messages;
        it->second.test.heard(now);
    }
}

// C.7.1 counts the link as lost that carried a request without an answer. But Linux drops ADD LINK and DELETE LINK
// while another of its flows is under way or ends; and a Linux server does not answer DELETE LINK for a link that it
// does not know any more, nor while requests of a broken link are under way, which soft-RoCE repeats for ever. So a
// link that was in use is asked by TEST LINK.
void GroupLlc::doubt(Actions& actions, std::uint8_t number, const std::string& why, TimePoint now) {
    const auto it = links_.find(number);
    if (it != links_.end() && it->second.state == LinkLlc::State::kUp) {
        it->second.test.ask(terms_, out(actions, it->second), now);
    } else {
        lose(actions, number, why);
    }
}

// At first contact, with only one link left, a Linux client does not answer while it waits for ADD LINK CONTINUATION,
// and both sides go on with that link (docs/notebook.md, Linux as the peer).
void GroupLlc::delete_link_unanswered(Actions& actions, TimePoint now) {
    constexpr auto kUnanswered = "DELETE LINK was not answered";
    const std::uint8_t carried_by = delete_link_.carrier();
    if (state_ == State::kForming) {
        forget(actions, delete_link_.deleting()->number, kUnanswered);
        return restart_elsewhere(actions, carried_by);
    }
    const auto carrier = links_.find(carried_by);
    const bool works = carrier != links_.end() && carrier->second.state == LinkLlc::State::kUp;
    if (works) {
        forget(actions, delete_link_.deleting()->number, kUnanswered);
    }
    doubt(actions, carried_by, kUnanswered, now);
    if (!works) {
        restart_elsewhere(actions, carried_by);
    }
}

// M2. True: a timeout was handled.
bool GroupLlc::tick_flows(Actions& actions, TimePoint now) {
    if (awaits_confirm_link()) {
        if (now < links_.begin()->second.confirm.deadline()) {
            return false;
        }
        // C.7.1 has both sides break the TCP connection, but a Linux client waits for the server's Decline.
        finish(actions, {Reason::kTimeoutConfirmLink, "CONFIRM LINK did not come in time", terms_.server});
        return true;
    }
    if (now >= add_link_.deadline()) {
        const AddLinkFlow::State state = add_link_.state();
        const std::uint8_t over_link = add_link_.carrier();
        // A client has one link that works, and tells the server that the other one has failed.
        const bool unanswered = state == AddLinkFlow::State::kOffered || (state == AddLinkFlow::State::kExchanging &&
                                                                          (terms_.server || state_ != State::kForming));
        if (unanswered && state_ == State::kForming) {
            finish(actions, {Reason::kTimeoutAddLink, "ADD LINK was not answered"});
            return true;
        }
        if (state == AddLinkFlow::State::kChoosing) {
            choose_too_late(actions);
            return true;
        }
        adding_failed(actions, "adding the link timed out", false);
        if (unanswered) {
            doubt(actions, over_link, "ADD LINK was not answered", now);
        }
        return true;
    }
    if (now >= delete_link_.end_deadline()) {
        finish(actions, {Reason::kNone, "the server did not answer DELETE LINK"});
        return true;
    }
    if (now >= delete_link_.deadline()) {
        delete_link_unanswered(actions, now);
        return true;
    }
    if (now >= own_rmbs_.deadline()) {
        const std::uint8_t carried_by = own_rmbs_.carrier();
        lose(actions, carried_by, text(own_rmbs_.type()) + " was not answered");
        restart_elsewhere(actions, carried_by);
        return true;
    }
    return false;
}

Actions GroupLlc::tick(TimePoint now) {
    Actions actions;
    if (state_ == State::kOver) {
        return actions;
    }
    while (state_ != State::kOver && tick_flows(actions, now)) {
        proceed(actions, now);
    }
    if (now >= asked_) {
        asked_ = kNever;
    }
    for (const std::uint8_t number : up()) {
        if (state_ != State::kActive) {
            break;
        }
        LinkLlc& link = links_.at(number);
        if (link.state == LinkLlc::State::kUp && !link.test.tick(terms_, out(actions, link), now)) {
            lose(actions, number, "TEST LINK was not answered");
        }
    }
    proceed(actions, now);
    return actions;
}

TimePoint GroupLlc::next_deadline() const {
    if (state_ == State::kOver) {
        return kNever;
    }
    if (awaits_confirm_link()) {
        return std::min(links_.begin()->second.confirm.deadline(), delete_link_.end_deadline());
    }
    TimePoint next = std::min(
        {add_link_.deadline(), delete_link_.deadline(), delete_link_.end_deadline(), own_rmbs_.deadline(), asked_});
    if (state_ == State::kActive) {
        if (!changing()) {
            next = std::min(next, own_rmbs_.retry_at());
        }
        for (const std::uint8_t number : up()) {
            next = std::min(next, links_.at(number).test.deadline(terms_));
        }
    }
    return next;
}

}  // namespace smc::llc
