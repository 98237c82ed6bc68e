// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Carries out the decisions of group::SmcrGroups, on simulated queue pairs and memory.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "datapath/smcr/link_driver.h"
#include "datapath/smcr/rmbe_transport.h"
#include "datapath/transport.h"
#include "engine.h"
#include "link.h"
#include "smc/group/smcr_groups.h"

namespace smc::sim {

inline std::string name(group::GroupId id) {
    return "link group " + std::to_string(static_cast<std::uint32_t>(id));
}

class LinkGroups {
 public:
    LinkGroups(World& world, std::string node, Engine& engine, const SimLink::Network& network,
               const std::vector<std::unique_ptr<Port>>& ports, const group::SmcrTerms& terms, bool sends_on_any_link);
    // Tells the link groups which ports work.
    void tell_ports();

    // How a member is told what becomes of it.
    struct Callbacks {
        std::function<void(const group::Joined&)> joined;
        std::function<void(const group::JoinRefused&)> refused;
        std::function<void()> link_ready;
        std::function<void(const group::LinkFailed&)> link_failed;
        std::function<void(bool aborts)> first_message;
    };
    void join(group::MemberId member, bool server, const clc::SmcrPeer& peer, TimePoint deadline, Callbacks callbacks);
    void await_link(group::MemberId member, const clc::SmcrPeer& peer);
    void await_peer(group::MemberId member);
    std::unique_ptr<Transport> run(group::MemberId member, const clc::Rmbe& peer);
    void leave(group::MemberId member, const group::SmcrGroups::Leaving& how);
    void end_all();

    // --- what else may happen to link groups
    // The device of a port is gone, until tell_ports() is called again.
    void lose_device(const Port& port);
    // Makes one random change that starts LLC flows: all groups end, or a port is missing for a while, or all ports are
    // there.
    void change_links();
    // In each group with two links, the connections on one of them send on the other from now on, although their link
    // works. The peer's connections stay on their links.
    void move_connections();
    // Whether move_connections() has moved any.
    [[nodiscard]] bool has_moved_any() const { return has_moved_any_; }
    // Sends one message that no peer expects.
    void speak_nonsense();
    // Cuts all links, so that nothing arrives at either end any more, and ends all groups.
    void die();

    // The own and the peer's queue pair of every link that is up.
    [[nodiscard]] std::map<std::string, std::string> active() const;
    // Requires that nothing is left of any group.
    void check_all_is_gone() const;

 private:
    struct LiveLink {
        std::shared_ptr<smcr::LinkDriver> driver;
        Port* port = nullptr;
    };
    struct Live {
        std::shared_ptr<smcr::GroupDriver> driver = std::make_shared<smcr::GroupDriver>();
        std::map<std::uint8_t, LiveLink> links;
        std::map<group::BufferId, std::shared_ptr<SimMemory>> buffers;
        [[nodiscard]] std::vector<std::shared_ptr<smcr::ElementOwner>> memory() const;
    };

    void carry_out(group::Actions actions);
    [[nodiscard]] smcr::RemoteRmbe on_any_link(const Live& group, smcr::RemoteRmbe rmbe);
    void tell_ports_without(const Port* missing);
    void destroy_later(std::shared_ptr<void> remains);
    void kick_all(group::GroupId id);
    void on(const group::CreateLink& action);
    void on(const group::ConnectLink& action);
    void on(const group::UseLink& action);
    void on(const group::RetireLink& action);
    void on(const group::KnowRmb& action);
    void on(const group::ForgetRmb& action);
    void on(const group::EndGroup& action);
    void on(const group::LinkChanged& action);
    void on(const group::RegisterBuffer& action);
    void on(const group::DropBuffer& action);
    void on(const group::SendMessage& action);
    void on(const group::OpenToken& action);
    void on(const group::ForgetToken& action);
    void on(const group::LingerToken& action);
    void on(const group::EndConnection& action);
    void on(const group::EndLink& action);
    void on(const group::ForgetGroup& action);
    void on(const group::Joined& action);
    void on(const group::JoinRefused& action);
    void on(const group::LinkReady& action);
    void on(const group::LinkFailed& action);
    void on(const group::GroupUp& action);
    void on(const group::GroupOver& action);
    // Tells the link groups how many messages have come: on the links of all groups, or of one.
    void hear();
    void hear(group::GroupId id);
    void tick();
    void check() const;
    [[nodiscard]] Live* live(group::GroupId group);
    [[nodiscard]] LiveLink* live(group::GroupId group, std::uint8_t link);
    void tell(const std::string& line) const { world_.tell(node_ + ": " + line); }

    World& world_;
    std::string node_;
    Engine& engine_;
    const SimLink::Network& network_;
    const std::vector<std::unique_ptr<Port>>& ports_;
    group::SmcrTerms terms_;
    bool sends_on_any_link_, has_moved_any_ = false;
    group::SmcrGroups groups_;
    std::map<group::GroupId, Live> live_;
    // Queue pairs that are being destroyed. A driver may outlive this object.
    using Remains = std::map<std::uint64_t, std::shared_ptr<void>>;
    std::shared_ptr<Remains> destroying_ = std::make_shared<Remains>();
    std::uint64_t next_destroyed_ = 0;
    std::map<group::MemberId, Callbacks> callbacks_;
    std::map<group::MemberId, group::GroupId> awaiting_;  // members that wait for their link
    std::deque<group::Action> pending_;
    bool carrying_out_ = false;
    Timer deadline_;
};

}  // namespace smc::sim
