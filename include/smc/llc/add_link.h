// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// ADD LINK: the server offers a second link (RFC 7609 sections 3.5.1.6 and 3.5.5.1.1, A.3.2; SMC v2.1). There is never
// a second path here: a client rejects every offer, and a server of version 1, which must offer, takes back what was
// accepted.
#pragma once

#include "smc/llc/link_out.h"

namespace smc::llc {

class AddLinkFlow {
 public:
    // The server's first attempt. Until under_way() ends the group carries nothing.
    void offer(const GroupTerms& group, const LinkOut& out, TimePoint now);
    // The client knows that the server will make one.
    void await(const GroupTerms& group, TimePoint now) { deadline_ = now + group.reply_timeout; }

    void on(const AddLink& message, const GroupTerms& group, const LinkOut& out);
    void on(const RequestAddLink& message, const GroupTerms& group, const LinkOut& out) const;
    // Nobody answered, or offered: one link will do.
    void expire() { deadline_ = kNever; }

    [[nodiscard]] bool under_way() const { return deadline_ != kNever; }
    [[nodiscard]] TimePoint deadline() const { return deadline_; }

 private:
    TimePoint deadline_ = kNever;
};

}  // namespace smc::llc
