// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// CONFIRM RKEY and DELETE RKEY: tell the peer of new RMBs of a link group, and of RMBs that are deleted (RFC 7609
// sections 3.5.5.2.1 and 3.5.5.2.2, A.3.5 to A.3.7; SMC v2.1). Requests about this side's RMBs go one at a time
// (section 3.5.5.3).
//
// Invariant:
//   M1  At most one RKEY request of ours is under way, and none while a link is being added or deleted; the peer's
//       requests are answered at any time.
#pragma once

#include <deque>
#include <optional>

#include "smc/llc/link_out.h"
#include "smc/llc/rtokens.h"

namespace smc::llc {

// Answers a request of the peer. `later`: refuses it for now, and the client is to try again (section 3.5.5.3.1).
// Returns the RMB with every link that is known; nullptr: the request was refused.
const RTokenSet* answer(const ConfirmRkey& request, PeerRmbs& rmbs, bool later, const LinkOut& out);
// Answers a message with further tokens of the RMB that was confirmed last.
void answer(const ConfirmRkeyContinuation& request, const LinkOut& out);
// Names unknown RKeys in the reply, and returns the RMBs that were deleted.
std::vector<RTokenSet> answer(const DeleteRkey& request, PeerRmbs& rmbs, const LinkOut& out);

// This side's RMBs, how each is reached over each link, and the requests about them that are to be sent.
class OwnRmbs {
 public:
    // Records a token; the peer is not told.
    void put(RmbId rmb, std::uint8_t link, const RToken& token) { rmbs_[rmb][link] = token; }
    void forget_link(std::uint8_t link);
    // For each RMB with tokens on both links: its RKey on `known` and its token on `added`.
    [[nodiscard]] std::vector<RTokenPair> pairs(std::uint8_t known, std::uint8_t added) const;

    // Queues a request that tells the peer of an RMB, or of its end.
    void confirm(RmbId rmb) { waiting_.push_back({rmb, false}); }
    void remove(RmbId rmb) { waiting_.push_back({rmb, true}); }
    // Sends the next request, if there is one and none is under way (M1). `links`: those over which the peer must be
    // able to use the RMB.
    void proceed(const GroupTerms& group, const std::vector<std::uint8_t>& links, const LinkOut& out, TimePoint now);
    // Nothing: the reply answers no request that is under way, or asks to try again (A.3.5).
    std::optional<RkeyConfirmed> on_reply(const ConfirmRkey& reply, TimePoint now);
    std::optional<RkeyDeleted> on_reply(const DeleteRkey& reply);

    [[nodiscard]] bool under_way() const { return deadline_ != kNever; }
    // The link that carried the request under way.
    [[nodiscard]] std::uint8_t carrier() const { return carrier_; }
    // There will be no answer: the next proceed() sends the request again.
    void restart();
    [[nodiscard]] TimePoint deadline() const { return deadline_; }
    // When to proceed() with a request that the peer refused for the moment.
    [[nodiscard]] TimePoint retry_at() const { return retry_at_; }
    // Type of the request that is under way.
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
    std::uint8_t carrier_ = 0;
    TimePoint deadline_ = kNever;
    TimePoint retry_at_ = kNever;
    unsigned retries_ = 0;  // of the first request
};

}  // namespace smc::llc
