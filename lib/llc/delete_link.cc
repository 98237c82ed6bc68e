// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/llc/delete_link.h"

#include <algorithm>
#include <utility>

namespace smc::llc {

void DeleteLinkFlow::want(const Deletion& deletion) {
    if (!concerns(deletion.number)) {
        wanted_.push_back(deletion);
    }
}

bool DeleteLinkFlow::concerns(std::uint8_t number) const {
    return (deleting_ && deleting_->number == number) ||
           std::ranges::any_of(wanted_, [&](const Deletion& d) { return d.number == number; });
}

void DeleteLinkFlow::begin(const LinkOut& out, TimePoint deadline) {
    deleting_ = wanted_.front();
    wanted_.pop_front();
    carrier_ = out.link;
    deadline_ = deadline;
    auto request = out.request<DeleteLink>();
    request.link_number = deleting_->number;
    request.reason = deleting_->reason;
    request.orderly = deleting_->orderly;
    out.send(request);
}

void DeleteLinkFlow::done(std::uint8_t number) {
    std::erase_if(wanted_, [&](const Deletion& d) { return d.number == number; });
    if (deleting_ && deleting_->number == number) {
        deleting_.reset();
        deadline_ = kNever;
    }
}

void DeleteLinkFlow::restart() {
    if (deleting_) {
        wanted_.push_front(*std::exchange(deleting_, std::nullopt));
        deadline_ = kNever;
    }
}

std::optional<Over> DeleteLinkFlow::end(DeleteLinkReason reason, const GroupTerms& group, const LinkOut& out,
                                        TimePoint now) {
    end_reason_ = reason;
    end_elsewhere(out);
    if (group.server) {
        return Over{Reason::kNone, text(reason)};
    }
    end_deadline_ = now + group.reply_timeout;
    return std::nullopt;
}

void DeleteLinkFlow::end_elsewhere(const LinkOut& out) {
    end_carrier_ = out.link;
    auto request = out.request<DeleteLink>();
    request.all = true;
    request.orderly = true;
    request.reason = end_reason_;
    out.send(request);
}

Over DeleteLinkFlow::ended(const DeleteLink& m, const GroupTerms& group, const LinkOut& out) const {
    if (!m.reply && group.server) {
        auto all = out.request<DeleteLink>();
        all.all = true;
        all.orderly = m.orderly;
        all.reason = m.reason;
        out.send(all);
    } else if (!m.reply && !m.all) {
        out.send(LinkOut::reply(m));
    }
    return {ending() || m.orderly ? Reason::kNone : Reason::kLinkDown, "DELETE LINK: " + text(m.reason)};
}

}  // namespace smc::llc
