// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/llc/confirm_link.h"

#include <algorithm>

namespace smc::llc {

namespace {

void fill_in(ConfirmLink& m, const GroupTerms& group, const LinkTerms& link) {
    m.cache_size = group.eye_catchers ? 0 : kNoEyeCatcher;
    m.mac = link.own.mac;
    m.gid = link.own.gid;
    m.qpn = link.own.qpn;
    m.link_id = link.own_id;
}

// The first field in which a message differs from what was agreed; nullptr: none.
const char* what_differs(const ConfirmLink& m, const GroupTerms& group, const LinkTerms& link) {
    const bool maxima = m.max_links != group.max_links || m.max_connections != group.max_connections;
    return m.gid.normalised() != link.peer.gid.normalised() ? "GID"
           : m.qpn != link.peer.qpn                         ? "QP number"
           : group.negotiated && maxima                     ? "maxima"
           : link.direct && m.mac != link.peer.mac          ? "MAC address"
           : m.reply && m.link_number != link.number        ? "link number"
                                                            : nullptr;
}

}  // namespace

void ConfirmLinkFlow::start(const GroupTerms& group, const LinkTerms& link, const LinkOut& out, TimePoint now) {
    state_ = State::kAwaited;
    deadline_ = now + (group.server ? group.reply_timeout : group.reply_timeout * 3 / 2);
    if (!group.server) {
        return;
    }
    auto request = out.request<ConfirmLink>();
    fill_in(request, group, link);
    request.link_number = link.number;
    request.max_links = group.max_links;
    request.max_connections = group.negotiated ? group.max_connections : std::uint8_t{0};
    out.send(request);
}

std::string ConfirmLinkFlow::on(const ConfirmLink& m, const GroupTerms& group, const LinkTerms& link,
                                const LinkOut& out) {
    if (state_ != State::kAwaited || m.reply != group.server) {
        return "unexpected CONFIRM LINK";
    }
    if (const char* wrong = what_differs(m, group, link)) {
        return std::string("CONFIRM LINK does not repeat what was agreed: ") + wrong;
    }
    eye_catchers_ = group.eye_catchers && has_eye_catchers(m);
    peer_id_ = m.link_id;
    state_ = State::kConfirmed;
    deadline_ = kNever;
    if (!group.server) {
        ConfirmLink answer = LinkOut::reply(m);
        answer.max_links = std::min(m.max_links, group.max_links);  // before release 1 a client may lower it (A.3.1)
        fill_in(answer, group, link);
        out.send(answer);
    }
    return {};
}

}  // namespace smc::llc
