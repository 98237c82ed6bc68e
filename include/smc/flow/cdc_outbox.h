// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// When a CDC message of an SMC-R connection is due, and what is in it (RFC 7609 sections 4.5.1 and 4.7.5, A.4). One
// message tells everything there is to tell.
//
// Invariant:
//   F6  Urgent data is announced in one message. Linux takes every other one with the same cursor for news.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "smc/flow/cdc_inbox.h"
#include "smc/wire/cdc.h"

namespace smc::flow {

class CdcOutbox {
 public:
    // `peer`: the peer's token. `receive_size`: bytes of the own ring, without what stands before `base`.
    CdcOutbox(AlertToken peer, std::uint32_t receive_size, std::uint32_t base)
        : peer_(peer), receive_size_(receive_size), base_(base) {}

    // The producer cursor, its flags or the connection's state changed: the peer is to be told.
    void published(const cdc::Producer& producer);
    // The consumer cursor moved. The peer is told when it waits for it, or when it has much to gain (section 4.5.1).
    void consumed(cdc::Cursor consumed, const CdcInbox& inbox);
    // The peer said something: it may wait for a consumer cursor that it was not told.
    void heard(const CdcInbox& inbox);

    [[nodiscard]] bool due() const { return due_; }
    // `before_the_end`: without saying that the connection is closed or reset, which lets the peer give its RMBE to
    // another one (section 4.8).
    [[nodiscard]] cdc::Message message(bool before_the_end = false) const;
    // The same was in the last message, and nothing has moved since: the end is due, and is not in it.
    [[nodiscard]] bool has_told(const cdc::Message& message) const;
    // That message is under way. `position`: among all that was posted on the link.
    void sent(CdcInbox& inbox, std::uint64_t position, const cdc::Message& message);
    // What was sent last, once more.
    [[nodiscard]] cdc::Message repeated() const;

    // --- failover (section 4.6)
    // The peer's device has acknowledged everything before this position.
    void acknowledged(std::uint64_t position);
    // Another link carries what follows: all is to be told again, behind this message. Its sequence number is that of
    // the last message that was acknowledged (4.6.1).
    [[nodiscard]] cdc::Message moved();
    // What of all that was published the peer may not have: bytes behind `consumed`, and behind what its device has
    // acknowledged. `size`: of its ring.
    [[nodiscard]] std::uint32_t not_there(cdc::Cursor consumed, std::uint32_t size) const;
    // Where that begins.
    [[nodiscard]] cdc::Cursor safe(cdc::Cursor consumed, std::uint32_t size) const;
    // That will never be written: the peer is not to count on it.
    void withdraw(cdc::Cursor consumed, std::uint32_t size);
    [[nodiscard]] const cdc::Producer& producer() const { return producer_; }
    // The peer's consumer cursor, as if it had not come beyond `position`.
    [[nodiscard]] cdc::Cursor no_further(cdc::Cursor consumed, cdc::Cursor position, std::uint32_t size) const;

 private:
    [[nodiscard]] bool urgent_consumed(const CdcInbox& inbox) const;
    [[nodiscard]] bool peer_gains(const CdcInbox& inbox) const;

    AlertToken peer_;
    std::uint32_t receive_size_, base_;
    cdc::Producer producer_;
    cdc::Cursor consumed_, told_;
    std::optional<cdc::Cursor> announced_;  // where urgent data was announced last
    std::uint16_t sequence_ = 0;            // of the last message that was sent
    std::uint16_t acknowledged_ = 0;        // ... and of the last one that the peer's device has acknowledged
    cdc::Cursor acknowledged_to_;           // the producer cursor in it
    struct Posted {
        std::uint64_t position = 0;
        std::uint16_t sequence = 0;
        cdc::Cursor producer;
        bool announces = false;  // urgent data
    };
    std::deque<Posted> posted_;  // not acknowledged yet
    bool due_ = false;
    std::optional<cdc::Message> last_;  // that was sent on this link
};

}  // namespace smc::flow
