// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A link group of one link: the queue pair, the memory that connections share, and LLC's state machine, which this
// class carries out. Control thread only; the link itself is driven by the engine.
//
// Invariants:
//   G1  A connection has a seat from before the CLC message that names its RMBE until its flow has ended.
//   G2  Nobody learns of an RMB before the peer has confirmed its RKey, or by the CLC message of the first contact.
//   G3  A group that is over takes no more seats and is forgotten by the registry; its objects go with the last seat.
#pragma once

#include <asio/io_context.hpp>
#include <asio/thread_pool.hpp>

#include <compare>
#include <functional>
#include <memory>
#include <vector>

#include "agent/loop/async_fd.h"
#include "agent/smcr/devices.h"
#include "agent/smcr/seat.h"
#include "datapath/engine.h"
#include "datapath/roce/rmbe_transport.h"
#include "smc/clc/handshake.h"
#include "smc/llc/link_machine.h"

namespace smc::smcr {

// What makes connections share a group (RFC 7609 sections 3.5.1.2 and 3.5.2; SMC v2.1: the EID too), beside the peer
// ID: Linux's Proposal of version 2 has none.
struct GroupKey {
    bool server = false;
    std::uint8_t version = 2;
    RoceGid peer_gid, own_gid;
    Eid eid{};
    auto operator<=>(const GroupKey&) const = default;
};

class LinkGroup : public std::enable_shared_from_this<LinkGroup> {
 public:
    struct Parts {
        asio::io_context& io;
        Engine& engine;
        const Config::Roce& config;
        std::shared_ptr<std::size_t> registered;  // bytes, of all groups
        unsigned max_connections;
        asio::thread_pool& blocking;           // for what may wait for the network: the neighbour's address
        std::shared_ptr<unsigned> connecting;  // groups that wait there
        std::function<void(LinkGroup&)> over;
    };

    static Result<std::shared_ptr<LinkGroup>> create(Parts parts, std::uint32_t id, const GroupKey& key,
                                                     const Devices::Usable& device);
    ~LinkGroup();
    LinkGroup(const LinkGroup&) = delete;
    LinkGroup& operator=(const LinkGroup&) = delete;

    // First contact: the queue pair is connected, the engine drives it, LLC begins.
    asio::awaitable<Result<void>> connect(clc::RocePeer peer);
    // Calls `then` once when LLC has confirmed the link, or when the group is over.
    void when_settled(std::function<void()> then);
    // In use, or to be used.
    asio::awaitable<Result<std::shared_ptr<Seat>>> take_seat(TimePoint deadline);
    // Ends it in the protocol's way, if it got that far.
    void end(llc::DeleteLinkReason reason);
    // The link is gone, or shall be.
    void down(const std::string& why);
    // RMBs of the peer that CLC told of.
    bool know(RKey rkey) { return machine_ && machine_->know(rkey); }
    void tick(TimePoint now);

    [[nodiscard]] bool settled() const { return confirmed_ || over_; }
    [[nodiscard]] bool active() const {
        return confirmed_ && !over_ && machine_->state() == llc::LinkMachine::State::kActive;
    }
    [[nodiscard]] bool is_over() const { return over_; }
    [[nodiscard]] const llc::Over& why_over() const { return why_; }
    [[nodiscard]] bool has_room() const {
        return seats_ + channel_->held() < parts_.max_connections && orphans_ < kMaxOrphans && !distrusted_;
    }
    // The peer says that it does not know this group. Nobody else joins it; it ends when it is idle, or when TEST LINK
    // fails.
    void distrust() { distrusted_ = true; }
    // The peer's end of the link is this one.
    [[nodiscard]] bool is_with(const clc::RoceAddress& peer) const;

    [[nodiscard]] std::uint32_t id() const { return id_; }
    [[nodiscard]] const GroupKey& key() const { return key_; }
    [[nodiscard]] clc::RoceAddress address() const;
    [[nodiscard]] const clc::RocePeer& peer() const { return peer_; }
    [[nodiscard]] const Devices::Usable& device() const { return device_; }
    [[nodiscard]] unsigned connections() const { return seats_; }
    [[nodiscard]] unsigned max_connections() const { return parts_.max_connections; }
    [[nodiscard]] std::size_t rmbs() const { return rmbs_.size(); }
    [[nodiscard]] LinkId own_link_id() const { return own_id_; }
    [[nodiscard]] LinkId peer_link_id() const { return peer_link_id_; }
    [[nodiscard]] bool eye_catchers() const { return eye_catchers_; }
    [[nodiscard]] const char* link_state() const;
    [[nodiscard]] const roce::Channel::Counters& counters() const { return channel_->counters(); }

 private:
    friend class Seat;
    struct Growth {  // an RMB that waits for the peer's confirmation
        std::shared_ptr<roce::Rmb> rmb;
        std::vector<std::shared_ptr<Event>> waiting;
    };

    LinkGroup(Parts parts, std::uint32_t id, const GroupKey& key, Devices::Usable device);
    Result<void> open();
    void send(wire::Bytes message);
    void apply(const llc::Actions& actions);
    void confirmed(const llc::Confirmed& confirmed);
    void finish(const llc::Over& over);
    void settle();
    void rkey_confirmed(const llc::RkeyConfirmed& confirmed);
    void rkey_deleted(const llc::RkeyDeleted& deleted);
    Result<std::shared_ptr<roce::Rmb>> allocate(roce::MemoryRegion::Access access);
    void release(std::shared_ptr<roce::Rmb> rmb);
    std::shared_ptr<Seat> seat_now();
    Result<void> begin_growth();
    [[nodiscard]] std::size_t memory_limit() const { return std::size_t{parts_.config.memory_mib} << 20; }
    void shrink(TimePoint now);
    void left();

    Parts parts_;
    std::uint32_t id_;
    GroupKey key_;
    Devices::Usable device_;
    std::shared_ptr<roce::ProtectionDomain> pd_;
    std::shared_ptr<roce::Channel> channel_;
    std::unique_ptr<roce::Link> spare_;  // version 1: what ADD LINK offers
    std::optional<llc::LinkMachine> machine_;
    clc::RocePeer peer_;
    LinkId own_id_{}, peer_link_id_{};

    std::vector<std::shared_ptr<roce::Rmb>> rmbs_;   // the peer knows them
    std::vector<std::shared_ptr<roce::Rmb>> sends_;  // to send from
    std::vector<std::shared_ptr<roce::Rmb>> going_;  // DELETE RKEY is under way
    std::optional<Growth> growth_;
    TimePoint surplus_since_ = TimePoint::max();

    // RMBEs that a peer was told of and never confirmed: nobody can say when it is done with them (C2).
    static constexpr unsigned kMaxOrphans = 16;
    unsigned seats_ = 0, orphans_ = 0;
    std::size_t link_bytes_ = 0;
    bool distrusted_ = false;
    TimePoint idle_since_ = TimePoint::max();
    std::vector<std::function<void()>> settled_;
    bool eye_catchers_ = false;
    bool confirmed_ = false;
    bool over_ = false;
    llc::Over why_;
};

}  // namespace smc::smcr
