// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// DELETE LINK: a link of a group goes, or all of them do (RFC 7609 sections 3.5.4, 3.5.5.1.3 and 3.5.5.1.4, A.3.4). The
// server decides: a client asks, and the server's own request is the answer. One deletion of a single link at a time.
#pragma once

#include <deque>
#include <optional>

#include "smc/llc/link_out.h"

namespace smc::llc {

class DeleteLinkFlow {
 public:
    struct Deletion {
        std::uint8_t number = 0;
        DeleteLinkReason reason = DeleteLinkReason::kLostPath;
        bool orderly = false;
    };

    // --- one link
    // Unless that is wanted already.
    void want(const Deletion& deletion);
    [[nodiscard]] bool wants() const { return !wanted_.empty() && !deleting_; }
    // Sends the next.
    void begin(const LinkOut& out, TimePoint deadline);
    // It is over, or shall not be told any more.
    void done(std::uint8_t number);
    // What it went over is gone: the same again over another link.
    void restart();
    [[nodiscard]] bool concerns(std::uint8_t number) const;
    [[nodiscard]] const std::optional<Deletion>& deleting() const { return deleting_; }
    [[nodiscard]] std::uint8_t over() const { return over_; }

    // --- all links
    // What it returned is the end; nothing: the server's answer is awaited.
    std::optional<Over> end(DeleteLinkReason reason, const GroupTerms& group, const LinkOut& out, TimePoint now);
    // The link that the server was asked over is gone: it is asked over another one.
    void end_elsewhere(const LinkOut& out);
    [[nodiscard]] std::uint8_t ends_over() const { return ends_over_; }
    // A peer that ends all, or its only link.
    [[nodiscard]] Over ended(const DeleteLink& message, const GroupTerms& group, const LinkOut& out) const;
    [[nodiscard]] bool ending() const { return end_deadline_ != kNever; }

    // Of either.
    [[nodiscard]] TimePoint deadline() const { return deadline_; }
    [[nodiscard]] TimePoint end_deadline() const { return end_deadline_; }

 private:
    std::deque<Deletion> wanted_;
    std::optional<Deletion> deleting_;
    std::uint8_t over_ = 0;
    TimePoint deadline_ = kNever;  // of the deletion that is under way
    DeleteLinkReason end_reason_ = DeleteLinkReason::kOperator;
    std::uint8_t ends_over_ = 0;
    TimePoint end_deadline_ = kNever;  // the client asked for the end of all, and waits
};

}  // namespace smc::llc
