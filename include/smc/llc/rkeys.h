// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The RMBs of a link group as LLC keeps them: the peer's, which it announces and takes back, and the requests about our
// own, which go one at a time (RFC 7609 section 3.5.5.3).
//
// Invariant:
//   M1  At most one own RKEY exchange at a time; the peer's are answered at any time.
#pragma once

#include <deque>
#include <optional>
#include <set>

#include "smc/llc/link_out.h"

namespace smc::llc {

// RKeys that the peer has told, by CLC or by CONFIRM RKEY. At most kMaxRmbs.
class PeerRkeys {
 public:
    // False: it has more than a group may have.
    bool know(RKey rkey);
    [[nodiscard]] bool knows(RKey rkey) const { return rkeys_.contains(rkey); }
    // Answers, and from now on knows the RKey. Section 3.5.5.2.1.
    void on_request(const ConfirmRkey& request, const LinkOut& out);
    // Tokens of other links: there are none.
    static void on_request(const ConfirmRkeyContinuation& request, const LinkOut& out);
    // Answers with the RKeys that were not known. Section 3.5.5.2.2.
    void on_request(const DeleteRkey& request, const LinkOut& out);

 private:
    std::set<RKey> rkeys_;
};

// CONFIRM RKEY and DELETE RKEY for our own RMBs.
class RkeyRequests {
 public:
    void confirm(RKey rkey, VirtualAddress address) { waiting_.push_back({rkey, address, false}); }
    void remove(RKey rkey) { waiting_.push_back({rkey, {}, true}); }
    // Sends the next request, if there is one and none is under way (M1).
    void proceed(const GroupTerms& group, const LinkOut& out, TimePoint now);
    // Nothing: it answers no request that is under way, or asks to try again (A.3.5).
    std::optional<RkeyConfirmed> on_reply(const ConfirmRkey& reply, TimePoint now);
    std::optional<RkeyDeleted> on_reply(const DeleteRkey& reply);

    [[nodiscard]] TimePoint deadline() const { return deadline_; }
    // When to proceed() with what the peer refused for the moment.
    [[nodiscard]] TimePoint retry_at() const { return retry_at_; }
    // Of the request that is under way: "CONFIRM RKEY".
    [[nodiscard]] Type under_way() const;

 private:
    struct Request {
        RKey rkey{};
        VirtualAddress address{};
        bool deletes = false;
    };
    [[nodiscard]] bool is_under_way(bool deletes) const;
    void done();

    std::deque<Request> waiting_;  // the first is under way if there is a deadline
    TimePoint deadline_ = kNever;
    TimePoint retry_at_ = kNever;
    unsigned retries_ = 0;  // of the first
};

}  // namespace smc::llc
