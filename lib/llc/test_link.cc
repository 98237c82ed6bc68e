// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/llc/test_link.h"

namespace smc::llc {

namespace {

// Twice reply_timeout, because the queue pair may be retransmitting.
std::chrono::milliseconds timeout(const GroupTerms& group) {
    return 2 * group.reply_timeout;
}

}  // namespace

bool TestLinkFlow::tick(const GroupTerms& group, const LinkOut& out, TimePoint now) {
    if (now < deadline(group)) {
        return true;
    }
    if (answer_by_ != kNever) {
        return false;
    }
    ask(group, out, now);
    return true;
}

void TestLinkFlow::ask(const GroupTerms& group, const LinkOut& out, TimePoint now) {
    if (answer_by_ != kNever) {
        return;
    }
    auto request = out.request<TestLink>();
    wire::store_be(data_.data(), sizeof asked_, ++asked_);
    request.user_data = data_;
    answer_by_ = now + timeout(group);
    out.send(request);
}

bool TestLinkFlow::on(const TestLink& m, const LinkOut& out) {
    if (!m.reply) {
        out.send(LinkOut::reply(m));
        return true;
    }
    if (answer_by_ == kNever) {
        return true;  // a late reply
    }
    answer_by_ = kNever;
    return m.user_data == data_;
}

TimePoint TestLinkFlow::deadline(const GroupTerms& group) const {
    return answer_by_ == kNever ? heard_at_ + group.test_interval : std::max(answer_by_, heard_at_ + timeout(group));
}

}  // namespace smc::llc
