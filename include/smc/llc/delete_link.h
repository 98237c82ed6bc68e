// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// DELETE LINK: how a link group ends (RFC 7609 sections 3.5.4 and 3.5.5.1.3 to 3.5.5.1.4, A.3.4). The server's request
// is the end; a client asks, and the server's own request is the answer.
#pragma once

#include <optional>

#include "smc/llc/link_out.h"

namespace smc::llc {

class DeleteLinkFlow {
 public:
    // Ends the group. What it returned is the end; nothing: the server's answer is awaited.
    std::optional<Over> end(DeleteLinkReason reason, const GroupTerms& group, const LinkOut& out, TimePoint now);
    // What it returned is the end; nothing: the group goes on.
    [[nodiscard]] std::optional<Over> on(const DeleteLink& message, const GroupTerms& group, const LinkTerms& link,
                                         const LinkOut& out) const;

    // The client asked, and waits.
    [[nodiscard]] bool under_way() const { return deadline_ != kNever; }
    [[nodiscard]] TimePoint deadline() const { return deadline_; }

 private:
    TimePoint deadline_ = kNever;
};

}  // namespace smc::llc
