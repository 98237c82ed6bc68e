// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// TEST LINK: is a link that nothing was heard on still alive? (RFC 7609 section 4.5.3, A.3.8)
#pragma once

#include <array>

#include "smc/llc/link_out.h"

namespace smc::llc {

class TestLinkFlow {
 public:
    // Something came over the link.
    void heard(TimePoint now) { heard_at_ = now; }
    // Asks when it is time to. False: the peer has had its time to answer, and nothing was heard meanwhile.
    bool tick(const GroupTerms& group, const LinkOut& out, TimePoint now);
    // Asks now, unless it has asked already: what was heard before is no answer.
    void ask(const GroupTerms& group, const LinkOut& out, TimePoint now);
    // Answers a request. False: a reply that is not the one to our request.
    bool on(const TestLink& message, const LinkOut& out);
    [[nodiscard]] TimePoint deadline(const GroupTerms& group) const;

 private:
    TimePoint heard_at_{};
    TimePoint answer_by_ = kNever;  // kNever: nothing was asked
    std::uint64_t asked_ = 0;       // how often; the data by which an answer is known
    std::array<std::uint8_t, 16> data_{};
};

}  // namespace smc::llc
