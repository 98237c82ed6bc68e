// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// CONFIRM RKEY and DELETE RKEY: the RMBs of a link group that come and go (RFC 7609 sections 3.5.5.2.1 and 3.5.5.2.2,
// A.3.5 to A.3.7; SMC v2.1). Requests about our own go one at a time (section 3.5.5.3).
//
// Invariant:
//   M1  At most one own RKEY exchange at a time, and none while a link is being added or deleted; the peer's are
//       answered at any time.
#pragma once

#include <deque>
#include <functional>
#include <optional>

#include "smc/llc/link_out.h"
#include "smc/llc/rtokens.h"

namespace smc::llc {

// The peer's requests. `later`: not now, the client is to try again (section 3.5.5.3.1). What it returned is the RMB
// with every link that is known; nullptr: it was refused.
const RTokenSet* answer(const ConfirmRkey& request, PeerRmbs& rmbs, bool later, const LinkOut& out);
// Further tokens of the RMB that was confirmed last.
void answer(const ConfirmRkeyContinuation& request, const LinkOut& out);
// Names the RKeys that were not known, and returns the RMBs that went.
std::vector<RTokenSet> answer(const DeleteRkey& request, PeerRmbs& rmbs, const LinkOut& out);

// Our own RMBs: which there are, how each is reached over each link, and what the peer is to be told.
class OwnRmbs {
 public:
    // Without the peer being told, or before it is.
    void put(RmbId rmb, std::uint8_t link, const RToken& token) { rmbs_[rmb][link] = token; }
    void forget_link(std::uint8_t link);
    // Pairs of all that the peer knows, or is being told of, over `known`.
    [[nodiscard]] std::vector<RTokenPair> pairs(std::uint8_t known, std::uint8_t added) const;

    // The peer is to hear of it, or that it goes.
    void confirm(RmbId rmb) { waiting_.push_back({rmb, false}); }
    void remove(RmbId rmb) { waiting_.push_back({rmb, true}); }
    // Sends the next request, if there is one and none is under way (M1). `links`: those that the peer must be able to
    // use it over.
    void proceed(const GroupTerms& group, const std::vector<std::uint8_t>& links, const LinkOut& out, TimePoint now);
    // Nothing: it answers no request that is under way, or asks to try again (A.3.5).
    std::optional<RkeyConfirmed> on_reply(const ConfirmRkey& reply, TimePoint now);
    std::optional<RkeyDeleted> on_reply(const DeleteRkey& reply);

    [[nodiscard]] bool under_way() const { return deadline_ != kNever; }
    // The link that it went over.
    [[nodiscard]] std::uint8_t over() const { return over_; }
    // It was in vain: the same again, at the next proceed().
    void restart();
    [[nodiscard]] TimePoint deadline() const { return deadline_; }
    // When to proceed() with what the peer refused for the moment.
    [[nodiscard]] TimePoint retry_at() const { return retry_at_; }
    // Of the request that is under way.
    [[nodiscard]] Type type() const;

 private:
    struct Request {
        RmbId rmb{};
        bool deletes = false;
    };
    [[nodiscard]] bool is_under_way(bool deletes) const;
    void done();

    std::map<RmbId, RTokenSet> rmbs_;
    std::deque<Request> waiting_;  // the first is under way if there is a deadline
    std::uint8_t over_ = 0;
    TimePoint deadline_ = kNever;
    TimePoint retry_at_ = kNever;
    unsigned retries_ = 0;  // of the first
};

}  // namespace smc::llc
