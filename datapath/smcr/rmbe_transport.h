// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// SMC-R: this side's ring is an RMBE that the peer writes by RDMA; the peer's ring is reached by RDMA writes from
// registered memory, and CDC messages tell of both (RFC 7609 sections 4.2 to 4.6). When a message is due and what is in
// it is decided in smc/flow.
#pragma once

#include <memory>

#include "datapath/smcr/link_driver.h"
#include "datapath/transport.h"
#include "smc/flow/cdc_outbox.h"
#include "smc/flow/staging.h"

namespace smc::smcr {

// The peer's RMBE, as it is reached over one link.
struct RemoteRmbe {
    std::uint8_t link = 1;
    RKey rkey{};
    VirtualAddress address{};  // of the RMB
    std::uint64_t offset = 0;  // of the element in it
    AlertToken token{};
    std::uint32_t bytes = 0;
};

class RmbeTransport final : public Transport, private Mover {
 public:
    struct Parts {
        std::shared_ptr<GroupDriver> group;  // `token` is open in it
        AlertToken token{};
        Element own;
        Element send;
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
    [[nodiscard]] bool can_send() const override;
    void want_room() override;
    [[nodiscard]] Pieces space(cdc::Cursor at, std::uint32_t bytes) const override;
    void publish(const cdc::Producer& producer, std::uint32_t written) override;
    void consumed(cdc::Cursor cursor) override;
    void flush() override;

 private:
    bool move() override;
    bool use(std::shared_ptr<LinkDriver> link);
    void write(const List<flow::RdmaWrite, flow::Staging::kMaxWrites>& writes);
    void send_if_due();
    bool resume();
    void forget_before();
    // C5: called when the link from which the connection has moved is broken.
    void hold_back();
    // Whether C5 holds anything back. Nothing new is written to a peer that is done with the connection.
    [[nodiscard]] bool is_held() const {
        return held_ && parts_.group->has_broken(held_->up_to) && !receiver_->inbox.peer_is_done();
    }
    [[nodiscard]] cdc::Cursor peer_consumed() const;
    [[nodiscard]] std::uint32_t not_consumed() const;

    Parts parts_;
    std::uint32_t base_;  // bytes of the eye catcher
    flow::Staging staging_;
    flow::CdcOutbox outbox_;
    Task* task_ = nullptr;
    GroupDriver::Receiver* receiver_ = nullptr;
    std::shared_ptr<LinkDriver> link_;  // the link that the connection sends on
    std::uint32_t lkey_ = 0;
    std::optional<cdc::Message> validation_;  // after a move: to be sent first, before everything is sent again
    // The link that the connection used until the move, if that link still works. Nothing is sent again on link_ until
    // it has completed all requests with sequence numbers below before_until_: otherwise its older writes and messages
    // could arrive after newer ones.
    std::shared_ptr<LinkDriver> before_;
    std::uint64_t before_until_ = 0;
    // C5: a broken link may still write once more to the peer's ring beyond this position.
    struct Held {
        cdc::Cursor position;
        unsigned up_to = 0;  // GroupDriver::last_broken()
    };
    std::optional<Held> held_;
};

}  // namespace smc::smcr
