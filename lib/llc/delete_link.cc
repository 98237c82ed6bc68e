// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/llc/delete_link.h"

namespace smc::llc {

std::optional<Over> DeleteLinkFlow::end(DeleteLinkReason reason, const GroupTerms& group, const LinkOut& out,
                                        TimePoint now) {
    auto request = out.request<DeleteLink>();
    request.all = true;
    request.orderly = true;
    request.reason = reason;
    out.send(request);
    if (group.server) {
        return Over{Reason::kNone, text(reason)};
    }
    deadline_ = now + group.reply_timeout;
    return std::nullopt;
}

std::optional<Over> DeleteLinkFlow::on(const DeleteLink& m, const GroupTerms& group, const LinkTerms& link,
                                       const LinkOut& out) const {
    std::string detail = "DELETE LINK: " + text(m.reason);
    if (m.reply) {
        return under_way() ? std::optional(Over{Reason::kNone, std::move(detail)}) : std::nullopt;
    }
    if (!m.all && m.link_number != link.number) {
        DeleteLink answer = LinkOut::reply(m);
        answer.reason = DeleteLinkReason::kUnknownLink;
        out.send(answer);
        return std::nullopt;
    }
    if (group.server) {
        auto all = out.request<DeleteLink>();
        all.all = true;
        all.orderly = m.orderly;
        all.reason = m.reason;
        out.send(all);
    } else if (!m.all) {
        out.send(LinkOut::reply(m));
    }
    return Over{under_way() || m.orderly ? Reason::kNone : Reason::kLinkDown, std::move(detail)};
}

}  // namespace smc::llc
