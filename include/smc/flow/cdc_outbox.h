// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Decides when a CDC message of an SMC-R connection is due, and what it says (RFC 7609 sections 4.5.1 and 4.7.5, A.4).
// Each message tells the whole state.
//
// Invariant:
//   F6  Urgent data is announced in one message only. Linux takes a second announcement with the same cursor for new
//       urgent data, and forgets the byte that it has.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "smc/flow/cdc_inbox.h"
#include "smc/wire/cdc.h"

namespace smc::flow {

class CdcOutbox {
 public:
    // `peer`: the peer's alert token. `receive_size`: bytes of this side's ring, without the `base` bytes of the
    // eye catcher.
    CdcOutbox(AlertToken peer, std::uint32_t receive_size, std::uint32_t base)
        : peer_(peer), receive_size_(receive_size), base_(base) {}

    // The producer cursor, its flags or the connection's state changed: a message is due.
    void published(const cdc::Producer& producer);
    // The consumer cursor moved. A message is due if the peer waits for it, if urgent data was consumed, or if the peer
    // gains much room (section 4.5.1).
    void consumed(cdc::Cursor consumed, const CdcInbox& inbox);
    // A message came from the peer. A message is due if the peer waits for a consumer cursor that it was not told yet.
    void heard(const CdcInbox& inbox);

    [[nodiscard]] bool due() const { return due_; }
    // The next message. `before_the_end`: without the flags C and A (closed, aborted), because they allow the peer to
    // give its RMBE to another connection (section 4.8).
    [[nodiscard]] cdc::Message message(bool before_the_end = false) const;
    // True if `message`, which omits the end that is due, says nothing beyond the last message sent: it need not be
    // sent.
    [[nodiscard]] bool has_told(const cdc::Message& message) const;
    // `message` was posted. `position`: its place among all requests that were posted on the link.
    void sent(CdcInbox& inbox, std::uint64_t position, const cdc::Message& message);
    // The present state with the sequence number of the last message sent, to be sent in place of that message.
    [[nodiscard]] cdc::Message repeated() const;

    // --- failover (section 4.6)
    // The peer's device has acknowledged all requests before `position`.
    void acknowledged(std::uint64_t position);
    // The connection has moved to another link. Returns the failover validation message, which goes first there; its
    // sequence number is that of the last acknowledged message (4.6.1). The whole state is due again after it.
    [[nodiscard]] cdc::Message moved();
    // How many of the published bytes the peer possibly lacks: those after both `consumed` and the last producer cursor
    // that its device has acknowledged. `size`: of the peer's ring.
    [[nodiscard]] std::uint32_t not_there(cdc::Cursor consumed, std::uint32_t size) const;
    // The cursor at which these bytes begin.
    [[nodiscard]] cdc::Cursor safe(cdc::Cursor consumed, std::uint32_t size) const;
    // Sets the producer cursor back to safe(): these bytes will never be written, so the peer must not count on them.
    void withdraw(cdc::Cursor consumed, std::uint32_t size);
    [[nodiscard]] const cdc::Producer& producer() const { return producer_; }
    // `consumed`, the peer's consumer cursor, but `position` if `consumed` is beyond it.
    [[nodiscard]] cdc::Cursor no_further(cdc::Cursor consumed, cdc::Cursor position, std::uint32_t size) const;

 private:
    [[nodiscard]] bool urgent_consumed(const CdcInbox& inbox) const;
    [[nodiscard]] bool peer_gains(const CdcInbox& inbox) const;

    AlertToken peer_;
    std::uint32_t receive_size_, base_;
    cdc::Producer producer_;
    cdc::Cursor consumed_, told_;
    std::optional<cdc::Cursor> announced_;  // producer cursor of the last urgent announcement
    std::uint16_t sequence_ = 0;            // of the last message that was sent
    std::uint16_t acknowledged_ = 0;        // of the last message that the peer's device has acknowledged
    cdc::Cursor acknowledged_to_;           // the producer cursor in that message
    struct Posted {
        std::uint64_t position = 0;
        std::uint16_t sequence = 0;
        cdc::Cursor producer;
        bool announces = false;  // it announces urgent data
    };
    std::deque<Posted> posted_;  // not acknowledged yet
    bool due_ = false;
    std::optional<cdc::Message> last_;  // the last message that was sent on this link
};

}  // namespace smc::flow
