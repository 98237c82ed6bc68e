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
    if (answer_by_ != kNever && heard_at_ <= asked_at_) {
        return false;
    }
    // A request that was not answered, although the peer was heard after it, proves nothing: the next one decides.
    answer_by_ = kNever;
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
    asked_at_ = now;
    answer_by_ = now + timeout(group);
    out.send(request);
}

bool TestLinkFlow::on(const TestLink& m, const LinkOut& out) {
    if (!m.reply) {
        out.send(LinkOut::reply(m));
        return true;
    }
    if (m.user_data == data_) {
        answer_by_ = kNever;
        return true;
    }
    // A late reply to an earlier request is no fault.
    return answer_by_ == kNever || wire::load_be(m.user_data.data(), sizeof asked_) < asked_;
}

TimePoint TestLinkFlow::deadline(const GroupTerms& group) const {
    return answer_by_ == kNever ? heard_at_ + group.test_interval : std::max(answer_by_, heard_at_ + timeout(group));
}

}  // namespace smc::llc
