// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// All link groups of this node, and which of them a connection joins. The server decides (RFC 7609 section 3.5.2): a
// group with the same peer that has room, or a new one. First contacts with one peer go one after the other, so that a
// burst of connections makes one group. Control thread only.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "agent/smcr/link_group.h"

namespace smc::smcr {

class LinkGroups {
 public:
    LinkGroups(asio::io_context& io, Engine& engine, const Config::Roce& config, Devices& devices)
        : io_(io), engine_(engine), config_(config), devices_(devices) {}
    ~LinkGroups() {
        blocking_.stop();
        blocking_.join();
    }

    struct Joined {
        std::shared_ptr<LinkGroup> group;
        std::shared_ptr<Seat> seat;
        bool first_contact = false;
        [[nodiscard]] clc::LocalRmbe local() const;
    };
    // At the server: whose Proposal this is, and the address of this end of the TCP connection.
    asio::awaitable<Result<Joined>> serve(const clc::RocePeer& peer, const RoceGid& local, TimePoint deadline);
    // At the client: what the server chose. On first contact the group is connected. Error ESTALE: out of sync.
    asio::awaitable<Result<Joined>> follow(const clc::RocePeer& peer, const RoceGid& local, TimePoint deadline);

    // A first contact that did not work out, or that the peer wants forgotten.
    void abandon(const std::shared_ptr<LinkGroup>& group, llc::DeleteLinkReason reason);
    void device_gone(const std::string& name);
    void end_all();
    void tick(TimePoint now);

    [[nodiscard]] const std::map<std::uint32_t, std::shared_ptr<LinkGroup>>& all() const { return groups_; }
    [[nodiscard]] std::size_t registered() const { return *registered_; }

 private:
    Result<std::shared_ptr<LinkGroup>> create(const GroupKey& key, const Devices::Usable& device,
                                              unsigned max_connections);
    [[nodiscard]] std::shared_ptr<LinkGroup> find(const GroupKey& key, const PeerId& peer) const;
    [[nodiscard]] std::shared_ptr<LinkGroup> forming(const GroupKey& key) const;

    asio::io_context& io_;
    Engine& engine_;
    const Config::Roce& config_;
    Devices& devices_;
    asio::thread_pool blocking_{4};
    std::shared_ptr<unsigned> connecting_ = std::make_shared<unsigned>(0);
    std::uint32_t next_id_ = 1;
    std::shared_ptr<std::size_t> registered_ = std::make_shared<std::size_t>(0);
    std::map<std::uint32_t, std::shared_ptr<LinkGroup>> groups_;
};

}  // namespace smc::smcr
