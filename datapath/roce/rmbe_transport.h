// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// SMC-R: the own ring is an RMBE that the peer writes by RDMA; the peer's ring is reached by RDMA writes from
// registered memory, and CDC messages tell of both (RFC 7609 sections 4.2 to 4.6).
//
// Invariants:
//   R1  Memory to send from is used again only when the peer's consumer cursor is beyond it: what the peer has consumed
//   no
//       retransmission can need.
//       The memory itself goes back when everything posted from it is done, which may be after the flow's end.
//   R2  With eye catchers both RMBEs begin with four bytes that are no data, and cursors on the wire count from 4
//       (section 4.4). Inside, cursors count from 0.
//   R3  Urgent data is announced in one message. Linux takes every other one with the same cursor for news.
#pragma once

#include <memory>

#include "datapath/roce/channel.h"
#include "datapath/transport.h"

namespace smc::roce {

inline constexpr std::uint32_t kEyeCatcherBytes = 4;

// The peer's RMBE.
struct RemoteRmbe {
    RKey rkey{};
    VirtualAddress address{};  // of the element
    AlertToken token{};
    std::uint32_t bytes = 0;
};

class RmbeTransport final : public Transport {
 public:
    struct Parts {
        std::shared_ptr<Channel> channel;  // has `token` open
        AlertToken token{};
        Element own;
        Element send;  // registered for the same link
        RemoteRmbe peer;
        bool eye_catchers = false;
    };
    explicit RmbeTransport(Parts parts);

    bool start(Poller& poller, Poller::Source& source) override;
    void stop() override;
    [[nodiscard]] std::uint32_t send_size() const override { return parts_.peer.bytes - base_; }
    [[nodiscard]] std::uint32_t window() const override;
    [[nodiscard]] std::span<std::uint8_t> receive_ring() const override { return parts_.own.bytes().subspan(base_); }
    PeerState load() override;
    bool arm() override { return connection_ != nullptr && connection_->inbox.fresh(); }
    [[nodiscard]] bool can_send() const override;
    [[nodiscard]] Pieces space(cdc::Cursor at, std::uint32_t bytes) override;
    void publish(const cdc::Producer& producer, std::uint32_t written) override;
    void consumed(cdc::Cursor cursor) override;

 private:
    [[nodiscard]] bool update_is_due() const;
    void write(std::uint32_t bytes);
    [[nodiscard]] wire::Encoded<cdc::kMessageBytes> message() const;
    void flush();

    Parts parts_;
    std::uint32_t base_;
    Channel::Connection* connection_ = nullptr;

    cdc::Producer producer_;    // as published
    cdc::Cursor written_;       // where the next RDMA write goes
    std::uint64_t staged_ = 0;  // bytes ever taken for sending
    cdc::Cursor consumed_, told_;
    std::optional<cdc::Cursor> urgent_;     // the peer announced it, and its consumption is not told yet
    std::optional<cdc::Cursor> announced_;  // where we last announced urgent data
    std::uint16_t sequence_ = 0;
    bool dirty_ = false;  // there is something to tell
};

}  // namespace smc::roce
