// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/llc/add_link.h"

namespace smc::llc {

void AddLinkFlow::enter(State state, TimePoint deadline) {
    state_ = state;
    deadline_ = deadline;
}

void AddLinkFlow::offer(const GroupTerms& group, const LinkOut& out, TimePoint now) {
    enter(State::kOffered, now + group.reply_timeout);
    auto offer = out.request<AddLink>();
    const QpEnd& end = group.second->end;
    offer.padded = true;  // as Linux has it
    offer.mac = end.mac;
    offer.gid = end.gid;
    offer.qpn = end.qpn;
    offer.link_number = kSecondLink;
    offer.mtu = end.mtu;
    offer.psn = end.psn;
    if (out.version >= 2) {
        offer.large.emplace().rkeys.push_back(group.second->rmb);
    }
    out.send(offer);
}

void AddLinkFlow::await(const GroupTerms& group, TimePoint now) {
    enter(State::kAwaited, now + group.reply_timeout);
}

void AddLinkFlow::on(const AddLink& m, const GroupTerms& group, const LinkOut& out, TimePoint now) {
    if (m.reply) {
        if (state_ != State::kOffered) {
            return;  // to nothing
        }
        if (m.rejected) {
            return enter(State::kIdle, kNever);
        }
        // Section 3.5.1.6.2: it must be acknowledged before data can flow.
        auto not_needed = out.request<DeleteLink>();
        not_needed.orderly = true;
        not_needed.link_number = kSecondLink;
        not_needed.reason = DeleteLinkReason::kAsymmetricNotNeeded;
        out.send(not_needed);
        return enter(State::kTakenBack, now + group.reply_timeout);
    }
    if (group.server) {
        return;  // version 1: a client asks for a link; section 3.5.5.3 lets the server ignore it
    }
    AddLink answer = LinkOut::reply(m);
    answer.rejected = true;
    answer.reason = AddLinkReason::kNoAlternatePath;
    answer.large.reset();
    out.send(answer);
    enter(State::kIdle, kNever);
}

void AddLinkFlow::on_reply(const DeleteLink& reply) {
    if (state_ == State::kTakenBack && !reply.all) {
        enter(State::kIdle, kNever);
    }
}

// SMC v2.1, REQUEST ADD LINK, note 5: a server that cannot add a link acknowledges all the same.
void AddLinkFlow::on(const RequestAddLink& m, const GroupTerms& group, const LinkOut& out) {
    if (!m.reply && group.server) {
        out.send(LinkOut::reply(m));
    }
}

std::optional<Over> AddLinkFlow::expire() {
    const bool offered = state_ == State::kOffered;
    enter(State::kIdle, kNever);
    return offered ? std::optional(Over{Reason::kTimeoutAddLink, "ADD LINK was not answered"}) : std::nullopt;
}

}  // namespace smc::llc
