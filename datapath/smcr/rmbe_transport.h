// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// SMC-R: the own ring is an RMBE that the peer writes by RDMA; the peer's ring is reached by RDMA writes from
// registered memory, and CDC messages tell of both (RFC 7609 sections 4.2 to 4.6). What is due and what is in it is
// decided in smc/flow.
#pragma once

#include <memory>

#include "datapath/smcr/link_driver.h"
#include "datapath/transport.h"
#include "smc/flow/cdc_outbox.h"
#include "smc/flow/staging.h"

namespace smc::smcr {

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
        std::shared_ptr<LinkDriver> link;  // has `token` open
        AlertToken token{};
        Element own;
        Element send;  // registered for the same link
        RemoteRmbe peer;
        bool eye_catchers = false;  // both RMBEs begin with one (section 4.4)
    };
    explicit RmbeTransport(Parts parts);

    bool start(Poller& poller, Poller::Source& source) override;
    void stop() override;
    [[nodiscard]] std::uint32_t send_size() const override { return parts_.peer.bytes - base_; }
    [[nodiscard]] std::uint32_t window() const override;
    [[nodiscard]] std::span<std::uint8_t> receive_ring() const override { return parts_.own.bytes().subspan(base_); }
    [[nodiscard]] flow::PeerState peer() const override;
    bool arm(const flow::PeerState& seen) override { return peer() != seen; }
    [[nodiscard]] bool can_send() const override;
    void want_room() override;
    [[nodiscard]] Pieces space(cdc::Cursor at, std::uint32_t bytes) const override;
    void publish(const cdc::Producer& producer, std::uint32_t written) override;
    void consumed(cdc::Cursor cursor) override;
    void flush() override;

 private:
    void write(std::uint32_t bytes);
    void send_if_due();

    Parts parts_;
    std::uint32_t base_;  // bytes of the eye catcher
    flow::Staging staging_;
    flow::CdcOutbox outbox_;
    LinkDriver::Receiver* receiver_ = nullptr;
};

}  // namespace smc::smcr
