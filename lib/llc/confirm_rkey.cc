// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// CONFIRM RKEY: a new RMB of a link group (RFC 7609 section 3.5.5.2.1, A.3.5).
#include <algorithm>

#include "smc/llc/rkeys.h"

namespace smc::llc {

namespace {

// A peer refuses while its configuration changes (A.3.5, flag C), and does not tell when that is done. Linux sets the
// flag with every refusal.
constexpr unsigned kMaxRetries = 3;
constexpr auto kRetryAfter = std::chrono::milliseconds(100);

}  // namespace

const RTokenSet* answer(const ConfirmRkey& request, PeerRmbs& rmbs, bool later, const LinkOut& out) {
    ConfirmRkey reply = LinkOut::reply(request);
    const RTokenSet* known = nullptr;
    if (!later) {
        RTokenSet tokens{{out.link, {request.rkey, request.address}}};
        for (const LinkRToken& other : request.others) {
            tokens.insert_or_assign(other.link_number, RToken{other.rkey, other.address});
        }
        known = rmbs.note_rmb(tokens);
    }
    reply.negative = known == nullptr;
    reply.retry = later;
    out.send(reply);
    return known;
}

void answer(const ConfirmRkeyContinuation& request, const LinkOut& out) {
    out.send(LinkOut::reply(request));
}

void OwnRmbs::forget_link(std::uint8_t link) {
    for (auto& [id, tokens] : rmbs_) {
        tokens.erase(link);
    }
}

std::vector<RTokenPair> OwnRmbs::pairs(std::uint8_t known, std::uint8_t added) const {
    std::vector<RTokenPair> out;
    for (const auto& [id, tokens] : rmbs_) {
        const auto here = tokens.find(known), there = tokens.find(added);
        if (here != tokens.end() && there != tokens.end()) {
            out.push_back({here->second.rkey, there->second.rkey, there->second.address});
        }
    }
    return out;
}

std::optional<RkeyConfirmed> OwnRmbs::on_reply(const ConfirmRkey& reply, TimePoint now) {
    if (!is_under_way(false)) {
        return std::nullopt;
    }
    const RmbId rmb = waiting_.front().rmb;
    if (const auto& tokens = rmbs_[rmb]; !tokens.contains(carrier_) || tokens.at(carrier_).rkey != reply.rkey) {
        return std::nullopt;  // a late reply
    }
    if (reply.negative && reply.retry && retries_ < kMaxRetries) {
        retries_++;
        deadline_ = kNever;
        retry_at_ = now + kRetryAfter;
        return std::nullopt;
    }
    done();
    if (reply.negative) {
        rmbs_.erase(rmb);
    }
    return RkeyConfirmed{rmb, !reply.negative};
}

void OwnRmbs::proceed(const GroupTerms& group, const std::vector<std::uint8_t>& links, const LinkOut& out,
                      TimePoint now) {
    if (waiting_.empty() || under_way() || (retry_at_ != kNever && now < retry_at_)) {
        return;
    }
    retry_at_ = kNever;
    const Request& next = waiting_.front();
    const RTokenSet& tokens = rmbs_[next.rmb];
    const auto here = tokens.find(out.link);
    if (here == tokens.end()) {
        return;  // not registered for this link yet; a later proceed() sends the request
    }
    deadline_ = now + 2 * group.reply_timeout;
    carrier_ = out.link;
    if (next.deletes) {
        auto request = out.request<DeleteRkey>();
        request.rkeys.push_back(here->second.rkey);
        request.count = 1;
        out.send(request);
        return;
    }
    auto request = out.request<ConfirmRkey>();
    request.rkey = here->second.rkey;
    request.address = here->second.address;
    for (const auto& [number, token] : tokens) {
        if (number != out.link && std::ranges::find(links, number) != links.end()) {
            request.others.push_back({number, token.rkey, token.address});
        }
    }
    request.other_tokens = static_cast<std::uint8_t>(request.others.size());
    out.send(request);
}

void OwnRmbs::restart() {
    deadline_ = kNever;
}

Type OwnRmbs::type() const {
    return is_under_way(true) ? Type::kDeleteRkey : Type::kConfirmRkey;
}

bool OwnRmbs::is_under_way(bool deletes) const {
    return deadline_ != kNever && waiting_.front().deletes == deletes;
}

void OwnRmbs::done() {
    waiting_.pop_front();
    deadline_ = kNever;
    retries_ = 0;
}

}  // namespace smc::llc
