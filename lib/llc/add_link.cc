// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/llc/add_link.h"

namespace smc::llc {

void AddLinkFlow::offer(const GroupTerms& group, const LinkOut& out, TimePoint now) {
    deadline_ = now + group.reply_timeout;
    auto offer = out.request<AddLink>();
    offer.padded = true;  // as Linux has it
    offer.mac = group.second->mac;
    offer.gid = group.second->gid;
    offer.qpn = group.second->qpn;
    offer.link_number = kSecondLink;
    offer.mtu = group.second->mtu;
    offer.psn = group.second->psn;
    out.send(offer);
}

void AddLinkFlow::on(const AddLink& m, const GroupTerms& group, const LinkOut& out) {
    if (m.reply) {
        if (!group.server || !under_way()) {
            return;  // to a request that has timed out
        }
        if (!m.rejected) {
            auto not_needed = out.request<DeleteLink>();
            not_needed.orderly = true;
            not_needed.link_number = kSecondLink;
            not_needed.reason = DeleteLinkReason::kAsymmetricNotNeeded;
            out.send(not_needed);
        }
        expire();
        return;
    }
    if (group.server) {
        return;  // version 1: a client asks for a link; section 3.5.5.3 lets the server ignore it
    }
    AddLink answer = LinkOut::reply(m);
    answer.rejected = true;
    answer.reason = AddLinkReason::kNoAlternatePath;
    answer.large.reset();
    out.send(answer);
    expire();
}

void AddLinkFlow::on(const RequestAddLink& m, const GroupTerms& group, const LinkOut& out) const {
    if (!m.reply && group.server) {
        RequestAddLink answer = LinkOut::reply(m);
        answer.rejected = true;
        out.send(answer);
    }
}

}  // namespace smc::llc
