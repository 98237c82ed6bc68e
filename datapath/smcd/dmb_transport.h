// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// SMC-D: both rings are memory that both peers have mapped. Payload is read from a socket straight into the peer's DMB.
#pragma once

#include <memory>

#include "datapath/smcd/dmb.h"
#include "datapath/transport.h"

namespace smc::smcd {

class DmbTransport final : public Transport {
 public:
    // `own` is registered for the peer, `peer` attached.
    DmbTransport(std::shared_ptr<Dmb> own, std::shared_ptr<Dmb> peer) : own_(std::move(own)), peer_(std::move(peer)) {}

    bool start(Poller& poller, Poller::Source& source) override;
    void woken() override { own_->doorbell().heard(); }
    void stop() override;
    bool detach() override {
        stop();
        return true;
    }
    [[nodiscard]] std::uint32_t send_size() const override { return static_cast<std::uint32_t>(peer_->ring().size()); }
    [[nodiscard]] std::uint32_t window() const override { return send_size(); }
    [[nodiscard]] std::span<std::uint8_t> receive_ring() const override { return own_->ring(); }
    [[nodiscard]] flow::PeerState peer() const override;
    [[nodiscard]] bool reads_peer_memory() const override { return true; }
    void arm() override { own_->doorbell().arm(); }
    [[nodiscard]] bool can_look() const override { return peer_notes_; }
    void disarm() override { own_->doorbell().disarm(); }
    [[nodiscard]] TimePoint news_since() const override { return own_->doorbell().noted(); }
    void taking_news() override {
        peer_notes_ |= own_->doorbell().noted() != kNever;
        own_->doorbell().forget();
    }
    [[nodiscard]] bool can_send() const override { return true; }
    void want_room() override {}
    [[nodiscard]] Pieces space(cdc::Cursor at, std::uint32_t bytes) const override {
        return pieces(peer_->ring(), at.count, bytes);
    }
    void publish(const cdc::Producer& producer, std::uint32_t written) override;
    void consumed(cdc::Cursor cursor) override;
    [[nodiscard]] bool receive_ring_is_valid() const override { return own_->lease().is_valid(); }
    [[nodiscard]] bool is_valid() const override { return own_->lease().is_valid() && peer_->lease().is_valid(); }
    void idle() override {
        if (peer_->lease().is_valid()) {
            peer_->give_pages_back();
        }
    }
    void flush() override {}

 private:
    std::shared_ptr<Dmb> own_;
    std::shared_ptr<Dmb> peer_;
    Poller* poller_ = nullptr;
    bool peer_notes_ = false;  // a ring of this peer has left its time
};

}  // namespace smc::smcd
