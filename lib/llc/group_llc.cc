// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/llc/group_llc.h"

#include <algorithm>

namespace smc::llc {

LinkOut GroupLlc::out(Actions& actions, const LinkLlc& link) const {
    return {actions, link.terms.number, terms_.version, link.little_endian};
}

void GroupLlc::over(Actions& actions, Over over) {
    if (state_ != State::kOver) {  // M3
        state_ = State::kOver;
        actions.push_back(std::move(over));
    }
}

// C.7.1: a client that is told of another link than it agreed on, or cannot read what it is told, declines. At the
// server it is too late: the client's CONFIRM LINK was its last word.
void GroupLlc::violated(Actions& actions, std::string how) {
    over(actions, {Reason::kLlcViolation, std::move(how), !terms_.server && awaits_confirm_link()});
}

bool GroupLlc::awaits_confirm_link() const {
    return std::ranges::any_of(
        links_, [](const auto& entry) { return entry.second.confirm.state() == ConfirmLinkFlow::State::kAwaited; });
}

void GroupLlc::activate(Actions& actions, TimePoint now) {
    if (state_ != State::kForming) {
        return;  // it is being ended meanwhile
    }
    state_ = State::kActive;
    const ConfirmLinkFlow& confirmed = first_link().confirm;
    actions.push_back(Confirmed{confirmed.eye_catchers(), confirmed.peer_id()});
    proceed(actions, now);
}

void GroupLlc::proceed(Actions& actions, TimePoint now) {
    if (state_ == State::kActive) {
        rkey_requests_.proceed(terms_, out(actions, first_link()), now);
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
        } else if (bad->verdict != Verdict::kIgnore) {
            violated(actions, bad->text());
        }
        return actions;
    }
    const auto& message = std::get<AnyMessage>(decoded);
    link.little_endian = header_of(message).little_endian;
    std::visit([&](const auto& m) { on(actions, link, m, now); }, message);
    return actions;
}

void GroupLlc::on(Actions& actions, LinkLlc& link, const ConfirmLink& m, TimePoint now) {
    if (std::string wrong = link.confirm.on(m, terms_, link.terms, out(actions, link)); !wrong.empty()) {
        return violated(actions, std::move(wrong));
    }
    if (terms_.server && terms_.second) {
        add_link_.offer(terms_, out(actions, link), now);
    } else if (!terms_.server && terms_.max_links > 1) {
        add_link_.await(terms_, now);
    } else {
        activate(actions, now);
    }
}

void GroupLlc::on(Actions& actions, LinkLlc& link, const AddLink& m, TimePoint now) {
    const bool awaited = add_link_.under_way();
    add_link_.on(m, terms_, out(actions, link), now);
    if (awaited && !add_link_.under_way()) {
        activate(actions, now);
    }
}

void GroupLlc::on(Actions& actions, LinkLlc& link, const RequestAddLink& m, TimePoint) {
    AddLinkFlow::on(m, terms_, out(actions, link));
}

void GroupLlc::on(Actions& actions, LinkLlc& link, const DeleteLink& m, TimePoint now) {
    if (state_ == State::kForming && m.reply && add_link_.under_way()) {
        add_link_.on_reply(m);
        if (!add_link_.under_way()) {
            activate(actions, now);
        }
        return;
    }
    if (auto end = delete_link_.on(m, terms_, link.terms, out(actions, link))) {
        over(actions, std::move(*end));
    }
}

void GroupLlc::on(Actions& actions, LinkLlc& link, const ConfirmRkey& m, TimePoint now) {
    if (!m.reply) {
        return peer_rkeys_.on_request(m, out(actions, link));
    }
    if (const auto confirmed = rkey_requests_.on_reply(m, now)) {
        actions.push_back(*confirmed);
        proceed(actions, now);
    }
}

void GroupLlc::on(Actions& actions, LinkLlc& link, const ConfirmRkeyContinuation& m, TimePoint) {
    if (!m.reply) {
        PeerRkeys::on_request(m, out(actions, link));
    }
}

void GroupLlc::on(Actions& actions, LinkLlc& link, const DeleteRkey& m, TimePoint now) {
    if (!m.reply) {
        return peer_rkeys_.on_request(m, out(actions, link));
    }
    if (const auto deleted = rkey_requests_.on_reply(m)) {
        actions.push_back(*deleted);
        proceed(actions, now);
    }
}

void GroupLlc::on(Actions& actions, LinkLlc& link, const TestLink& m, TimePoint) {
    if (!link.test.on(m, out(actions, link))) {
        violated(actions, "TEST LINK came back with other data");
    }
}

Actions GroupLlc::confirm_rkey(RKey rkey, VirtualAddress address, TimePoint now) {
    Actions actions;
    rkey_requests_.confirm(rkey, address);
    proceed(actions, now);
    return actions;
}

Actions GroupLlc::delete_rkey(RKey rkey, TimePoint now) {
    Actions actions;
    rkey_requests_.remove(rkey);
    proceed(actions, now);
    return actions;
}

Actions GroupLlc::end(DeleteLinkReason reason, TimePoint now) {
    Actions actions;
    if (state_ == State::kOver || state_ == State::kEnding) {
        return actions;
    }
    if (auto end = delete_link_.end(reason, terms_, out(actions, first_link()), now)) {
        over(actions, std::move(*end));
    } else {
        state_ = State::kEnding;
        add_link_ = {};
    }
    return actions;
}

Actions GroupLlc::down(std::string why) {
    Actions actions;
    // C.2: whose CONFIRM LINK has not arrived may still decline. What the client sent last may be what failed.
    const bool may_decline = state_ == State::kForming && (!terms_.server || awaits_confirm_link());
    over(actions, {Reason::kLinkDown, std::move(why), may_decline});
    return actions;
}

void GroupLlc::heard(std::uint8_t number, std::uint64_t messages, TimePoint now) {
    const auto it = links_.find(number);
    if (it != links_.end() && it->second.messages != messages) {
        it->second.messages = messages;
        it->second.test.heard(now);
    }
}

Actions GroupLlc::tick(TimePoint now) {
    Actions actions;
    if (state_ == State::kOver) {
        return actions;
    }
    for (const auto& [number, link] : links_) {
        if (state_ == State::kForming && now >= link.confirm.deadline()) {
            // C.7.1 has both break the TCP connection; but a Linux client waits for the server's Decline.
            over(actions, {Reason::kTimeoutConfirmLink, "waiting for CONFIRM LINK", terms_.server});
            return actions;
        }
    }
    if (now >= add_link_.deadline()) {
        if (auto end = add_link_.expire()) {
            over(actions, std::move(*end));
        } else {
            activate(actions, now);
        }
        return actions;
    }
    if (now >= delete_link_.deadline()) {
        over(actions, {Reason::kNone, "the server did not answer DELETE LINK"});
        return actions;
    }
    if (state_ == State::kActive && now >= rkey_requests_.retry_at()) {
        proceed(actions, now);
        return actions;
    }
    if (now >= rkey_requests_.deadline()) {  // M2
        over(actions, {Reason::kLinkDown, text(rkey_requests_.under_way()) + " was not answered"});
        return actions;
    }
    for (auto& [number, link] : links_) {
        if (state_ == State::kActive && !link.test.tick(terms_, out(actions, link), now)) {
            over(actions, {Reason::kLinkDown, "TEST LINK was not answered"});
        }
    }
    return actions;
}

TimePoint GroupLlc::next_deadline() const {
    if (state_ == State::kOver) {
        return kNever;
    }
    TimePoint next = std::min({add_link_.deadline(), delete_link_.deadline(), rkey_requests_.deadline(),
                               state_ == State::kActive ? rkey_requests_.retry_at() : kNever});
    for (const auto& [number, link] : links_) {
        if (state_ == State::kForming) {
            next = std::min(next, link.confirm.deadline());
        } else if (state_ == State::kActive) {
            next = std::min(next, link.test.deadline(terms_));
        }
    }
    return next;
}

}  // namespace smc::llc
