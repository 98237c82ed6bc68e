// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// CONFIRM RKEY: a new RMB of a link group (RFC 7609 section 3.5.5.2.1, A.3.5).
#include "smc/llc/rkeys.h"

namespace smc::llc {

namespace {

// A peer whose configuration changes says so, and not when it is done (A.3.5, flag C). Linux sets that flag with every
// refusal.
constexpr unsigned kMaxRetries = 3;
constexpr auto kRetryAfter = std::chrono::milliseconds(100);

}  // namespace

bool PeerRkeys::know(RKey rkey) {
    if (rkeys_.size() >= kMaxRmbs && !rkeys_.contains(rkey)) {
        return false;
    }
    rkeys_.insert(rkey);
    return true;
}

void PeerRkeys::on_request(const ConfirmRkey& request, const LinkOut& out) {
    ConfirmRkey answer = LinkOut::reply(request);
    answer.negative = !know(request.rkey);
    out.send(answer);
}

void PeerRkeys::on_request(const ConfirmRkeyContinuation& request, const LinkOut& out) {
    out.send(LinkOut::reply(request));
}

std::optional<RkeyConfirmed> RkeyRequests::on_reply(const ConfirmRkey& reply, TimePoint now) {
    if (!is_under_way(false) || waiting_.front().rkey != reply.rkey) {
        return std::nullopt;  // late
    }
    if (reply.negative && reply.retry && retries_ < kMaxRetries) {
        retries_++;
        deadline_ = kNever;
        retry_at_ = now + kRetryAfter;
        return std::nullopt;
    }
    done();
    return RkeyConfirmed{reply.rkey, !reply.negative};
}

void RkeyRequests::proceed(const GroupTerms& group, const LinkOut& out, TimePoint now) {
    if (waiting_.empty() || deadline_ != kNever || (retry_at_ != kNever && now < retry_at_)) {
        return;
    }
    retry_at_ = kNever;
    deadline_ = now + 2 * group.reply_timeout;
    const Request& next = waiting_.front();
    if (next.deletes) {
        auto request = out.request<DeleteRkey>();
        request.rkeys.push_back(next.rkey);
        request.count = 1;
        out.send(request);
        return;
    }
    auto request = out.request<ConfirmRkey>();
    request.rkey = next.rkey;
    request.address = next.address;
    out.send(request);
}

Type RkeyRequests::under_way() const {
    return is_under_way(true) ? Type::kDeleteRkey : Type::kConfirmRkey;
}

bool RkeyRequests::is_under_way(bool deletes) const {
    return deadline_ != kNever && waiting_.front().deletes == deletes;
}

void RkeyRequests::done() {
    waiting_.pop_front();
    deadline_ = kNever;
    retries_ = 0;
}

}  // namespace smc::llc
