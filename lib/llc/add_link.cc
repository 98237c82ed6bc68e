// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/llc/add_link.h"

#include <algorithm>

namespace smc::llc {

namespace {

constexpr std::size_t kTokensPerMessage = 2;

void fill_in(AddLink& m, const LinkTerms& own, const std::vector<RTokenPair>& pairs) {
    m.padded = true;  // as Linux has it
    m.mac = own.own.mac;
    m.gid = own.own.gid;
    m.qpn = own.own.qpn;
    m.link_number = own.number;
    m.mtu = own.own.mtu;
    m.psn = own.own.psn;
    if (m.version >= 2) {
        auto& large = m.large.emplace();
        for (const RTokenPair& pair : pairs) {
            large.rkeys.push_back(pair);
        }
    }
}

QpEnd end_of(const AddLink& m) {
    return {m.gid.normalised(), m.mac, m.qpn, m.psn, m.mtu};
}

}  // namespace

void AddLinkFlow::enter(State state, TimePoint deadline) {
    state_ = state;
    deadline_ = deadline;
}

void AddLinkFlow::want(TimePoint deadline) {
    *this = {};
    enter(State::kWanted, deadline);
}

void AddLinkFlow::offer(const LinkTerms& own, const RoceGid& target, std::vector<RTokenPair> pairs, const LinkOut& out,
                        TimePoint deadline) {
    *this = {};
    enter(State::kOffered, deadline);
    carrier_ = out.link;
    terms_ = own;
    auto request = out.request<AddLink>();
    fill_in(request, own, pairs);
    if (request.large) {
        request.large->target_gid = target;
    }
    untold_ = std::move(pairs);
    out.send(request);
}

void AddLinkFlow::await(TimePoint deadline) {
    *this = {};
    enter(State::kAwaited, deadline);
}

void AddLinkFlow::choose(const AddLink& request, std::uint8_t over, TimePoint deadline) {
    *this = {};
    enter(State::kChoosing, deadline);
    carrier_ = over;
    request_ = request;
    terms_.number = request.link_number;
    terms_.peer = end_of(request);
    if (request.large) {
        learnt_.assign(request.large->rkeys.begin(), request.large->rkeys.end());
    }
}

void AddLinkFlow::accept(const LinkTerms& own, std::vector<RTokenPair> pairs, const LinkOut& out, TimePoint deadline) {
    const QpEnd peer = terms_.peer;
    terms_ = own;
    terms_.peer = peer;
    AddLink reply = LinkOut::reply(request_);
    reply.large.reset();
    fill_in(reply, terms_, pairs);
    if (reply.large) {
        reply.large->link_type = own.direct ? clc::LinkType::kDirect : clc::LinkType::kIndirect;
    }
    untold_ = std::move(pairs);
    out.send(reply);
    enter(out.version >= 2 ? State::kConfirming : State::kExchanging, deadline);
}

void AddLinkFlow::reject(AddLinkReason reason, const LinkOut& out) {
    AddLink reply = LinkOut::reply(request_);
    reply.rejected = true;
    reply.reason = reason;
    reply.large.reset();
    out.send(reply);
    done();
}

bool AddLinkFlow::on_reply(const AddLink& reply, const LinkOut& out, TimePoint deadline) {
    if (reply.link_number != terms_.number || !is_valid(reply.mtu)) {
        return false;
    }
    terms_.peer = end_of(reply);
    if (out.version < 2) {
        enter(State::kExchanging, deadline);
        AddLinkContinuation first = out.request<AddLinkContinuation>();
        first.link_number = terms_.number;
        send_tokens(first, out);
        return true;
    }
    if (reply.large) {
        learnt_.assign(reply.large->rkeys.begin(), reply.large->rkeys.end());
        terms_.direct = reply.large->link_type == clc::LinkType::kDirect;
    }
    enter(State::kConnecting, deadline);
    return true;
}

void AddLinkFlow::send_tokens(AddLinkContinuation message, const LinkOut& out) {
    message.tokens_left = static_cast<std::uint8_t>(untold_.size());
    message.rkeys.resize(0);
    const auto n = std::min(untold_.size(), kTokensPerMessage);
    for (std::size_t i = 0; i < n; i++) {
        message.rkeys.push_back(untold_[i]);
    }
    untold_.erase(untold_.begin(), untold_.begin() + static_cast<std::ptrdiff_t>(n));
    out.send(message);
}

// A.3.3: the server asks and the client answers, each with two of its tokens, until neither has any left.
bool AddLinkFlow::on(const AddLinkContinuation& m, const LinkOut& out, TimePoint deadline) {
    // C.7.1: the count must not exceed the previous one less the tokens that were told. It may be lower: Linux may
    // announce more than it tells.
    const unsigned told = static_cast<unsigned>(m.rkeys.size());
    if (m.link_number != terms_.number || m.tokens_left < told || (peers_left_ && *peers_left_ < m.tokens_left)) {
        return false;
    }
    learnt_.insert(learnt_.end(), m.rkeys.begin(), m.rkeys.end());
    peers_left_ = m.tokens_left - told;
    deadline_ = deadline;
    if (!m.reply) {
        send_tokens(LinkOut::reply(m), out);
        if (*peers_left_ == 0 && untold_.empty()) {
            state_ = State::kConfirming;
        }
        return true;
    }
    if (*peers_left_ == 0 && untold_.empty()) {
        state_ = State::kConnecting;
        return true;
    }
    AddLinkContinuation next = out.request<AddLinkContinuation>();
    next.link_number = terms_.number;
    send_tokens(next, out);
    return true;
}

void AddLinkFlow::confirming(TimePoint deadline) {
    enter(State::kConfirming, deadline);
}

void AddLinkFlow::done() {
    enter(State::kIdle, kNever);
}

}  // namespace smc::llc
