// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// DELETE LINK: deletes a link of a group, or all of them (RFC 7609 sections 3.5.4, 3.5.5.1.3 and 3.5.5.1.4, A.3.4). The
// server decides: if a client asks, the server answers with a request of its own. Single links are deleted one at a
// time.
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
    // Queues a deletion, unless one of the same link is queued or under way.
    void want(const Deletion& deletion);
    [[nodiscard]] bool wants() const { return !wanted_.empty() && !deleting_; }
    // Sends the request of the next queued deletion.
    void begin(const LinkOut& out, TimePoint deadline);
    // The deletion is over, or the peer need not be told of it any more.
    void done(std::uint8_t number);
    // The link that carried the request is gone: queues the deletion again, to go over another link.
    void restart();
    [[nodiscard]] bool concerns(std::uint8_t number) const;
    [[nodiscard]] const std::optional<Deletion>& deleting() const { return deleting_; }
    [[nodiscard]] std::uint8_t carrier() const { return carrier_; }

    // --- all links
    // Returns the end of the group at the server; nothing at the client, which waits for the server's answer.
    std::optional<Over> end(DeleteLinkReason reason, const GroupTerms& group, const LinkOut& out, TimePoint now);
    // The link that carried the client's request is gone: asks the server over another one.
    void end_elsewhere(const LinkOut& out);
    [[nodiscard]] std::uint8_t end_carrier() const { return end_carrier_; }
    // The peer deletes all links, or the only one: answers it, and returns the end of the group.
    [[nodiscard]] Over ended(const DeleteLink& message, const GroupTerms& group, const LinkOut& out) const;
    [[nodiscard]] bool ending() const { return end_deadline_ != kNever; }

    // When the answer is due: to the deletion of one link, and to that of all links.
    [[nodiscard]] TimePoint deadline() const { return deadline_; }
    [[nodiscard]] TimePoint end_deadline() const { return end_deadline_; }

 private:
    std::deque<Deletion> wanted_;
    std::optional<Deletion> deleting_;
    std::uint8_t carrier_ = 0;
    TimePoint deadline_ = kNever;  // of the deletion that is under way
    DeleteLinkReason end_reason_ = DeleteLinkReason::kOperator;
    std::uint8_t end_carrier_ = 0;
    TimePoint end_deadline_ = kNever;  // the client has asked to delete all links, and waits
};

}  // namespace smc::llc
