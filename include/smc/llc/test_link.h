// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// TEST LINK: finds out whether a link on which nothing was heard is still alive (RFC 7609 section 4.5.3, A.3.8).
#pragma once

#include <array>

#include "smc/llc/link_out.h"

namespace smc::llc {

class TestLinkFlow {
 public:
    // A message came over the link.
    void heard(TimePoint now) { heard_at_ = now; }
    // Sends a request when it is due. False: the time for the answer is over, and nothing was heard since the request.
    bool tick(const GroupTerms& group, const LinkOut& out, TimePoint now);
    // Sends a request now, unless one is under way. Messages that were heard before do not count as the answer.
    void ask(const GroupTerms& group, const LinkOut& out, TimePoint now);
    // Answers a request. False: a reply with data that no request of ours had.
    bool on(const TestLink& message, const LinkOut& out);
    [[nodiscard]] TimePoint deadline(const GroupTerms& group) const;

 private:
    TimePoint heard_at_{}, asked_at_{};
    TimePoint answer_by_ = kNever;  // kNever: no request is under way
    std::uint64_t asked_ = 0;       // number of requests; it is in data_, by which the answer is recognised
    std::array<std::uint8_t, 16> data_{};
};

}  // namespace smc::llc
