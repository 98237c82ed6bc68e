// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A transport that sends its consumer cursor when net/smc (5.18 and later) does, and not sooner. When it consumes
// bytes, it sends the cursor in three cases: more than a tenth of the RMBE was consumed since the cursor was sent, and
// the peer has half of the RMBE in use or is blocked; the peer has requested the cursor; urgent data was consumed.
// Every other message carries the cursor as well, and answers a request. Once everything is read, the peer no longer
// counts as blocked.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "datapath/transport.h"

namespace smc::sim {

class LinuxReader final : public Transport {
 public:
    explicit LinuxReader(std::unique_ptr<Transport> transport) : smc_(std::move(transport)) {}

    bool start(Poller& poller, Poller::Source& source) override { return smc_->start(poller, source); }
    void woken() override { smc_->woken(); }
    void stop() override;
    [[nodiscard]] std::uint32_t send_size() const override { return smc_->send_size(); }
    [[nodiscard]] std::uint32_t window() const override { return smc_->window(); }
    [[nodiscard]] std::span<std::uint8_t> receive_ring() const override { return smc_->receive_ring(); }
    [[nodiscard]] flow::PeerState peer() const override { return smc_->peer(); }
    [[nodiscard]] bool can_send() const override { return smc_->can_send(); }
    void want_room() override { smc_->want_room(); }
    [[nodiscard]] Pieces space(cdc::Cursor at, std::uint32_t bytes) const override { return smc_->space(at, bytes); }
    void publish(const cdc::Producer& producer, std::uint32_t written) override;
    void consumed(cdc::Cursor cursor) override;
    void flush() override;

 private:
    void tell();
    [[nodiscard]] bool is_due(const flow::PeerState& peer) const;
    [[nodiscard]] bool has_consumed(cdc::Cursor position) const;
    [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(smc_->receive_ring().size()); }

    std::unique_ptr<Transport> smc_;
    cdc::Producer said_;  // last one published
    cdc::Cursor consumed_, told_;
    std::uint16_t heard_ = 0;            // last message
    bool blocked_ = false;               // the peer
    bool asked_ = false;                 // the peer's request for the cursor is not answered
    std::optional<cdc::Cursor> urgent_;  // urgent data whose consumption was sent
};

}  // namespace smc::sim
