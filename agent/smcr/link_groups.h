// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Carries out what group::SmcrGroups decides: queue pairs, registered memory, links in the engine, messages on them.
// Control thread only; the links themselves are driven by the engine.
#pragma once

#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/thread_pool.hpp>
#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "agent/loop/deadline.h"
#include "agent/smcr/buffer.h"
#include "agent/smcr/devices.h"
#include "datapath/engines.h"
#include "datapath/smcr/link_driver.h"
#include "datapath/transport.h"
#include "smc/group/smcr_groups.h"

namespace smc::smcr {

class LinkGroups {
 public:
    LinkGroups(asio::io_context& io, Engines& engines, const Config& config, Devices& devices);
    ~LinkGroups();
    LinkGroups(const LinkGroups&) = delete;
    LinkGroups& operator=(const LinkGroups&) = delete;

    // Callbacks of a member; each is called at most once.
    struct Callbacks {
        std::function<void(const group::Joined&)> joined;
        std::function<void(const group::JoinRefused&)> refused;
        std::function<void()> link_ready;
        std::function<void(const group::LinkFailed&)> link_failed;
        std::function<void(bool aborts)> first_message;
    };
    void join(group::MemberId member, bool server, const clc::SmcrPeer& peer, const Devices::Local& local,
              const group::ElementBytes& bytes, TimePoint deadline, Callbacks callbacks);
    void await_link(group::MemberId member, const clc::SmcrPeer& peer);
    // To be called when the link is ready: first_message is called at the first CDC message for this member.
    void await_peer(group::MemberId member);
    // The transport for the data path, when the link is ready. nullptr: the group has ended.
    std::unique_ptr<Transport> run(group::MemberId member, const clc::Rmbe& peer);
    void leave(group::MemberId member, const group::SmcrGroups::Leaving& how);

    void device_gone(const std::string& name);
    void end_all();

    // Most bytes that all groups may register from now on. Memory that is registered already stays.
    void set_memory_limit(std::size_t bytes) { groups_.set_memory_limit(bytes); }

    // The ports of Devices have changed.
    void ports_changed();

    // The device, protection domain and driver of a link.
    struct LiveLink {
        Devices::Usable device;
        std::shared_ptr<roce::ProtectionDomain> pd;
        std::shared_ptr<LinkDriver> driver;
        unsigned serial = 0;  // among all links of this agent: a link's number may be used again
    };
    // nullptr: the link has ended.
    [[nodiscard]] const LiveLink* find(group::GroupId group, std::uint8_t link) const;
    // The number of the link that a connection sends on now; 0: the connection does not run.
    [[nodiscard]] std::uint8_t link_of(group::GroupId group, AlertToken token) const;
    [[nodiscard]] const group::SmcrGroups& groups() const { return groups_; }
    // The engine that drives the links and connections of this group, which must be live.
    [[nodiscard]] Engine& engine_of(group::GroupId group) const { return *live_.at(group).engine; }
    // Bytes registered with RDMA devices, including memory of links that have not ended yet.
    [[nodiscard]] std::size_t registered() const;

 private:
    // Resources of a live group.
    struct Live {
        Engine* engine = nullptr;  // drives all links and connections of the group
        std::shared_ptr<GroupDriver> driver = std::make_shared<GroupDriver>();
        std::map<std::uint8_t, LiveLink> links;
        std::vector<std::shared_ptr<roce::ProtectionDomain>> pds;  // one for each device that the group has used
        std::map<group::BufferId, std::shared_ptr<Buffer>> buffers;
        // All buffers, for a link that keeps them until its queue pair is destroyed.
        [[nodiscard]] std::vector<std::shared_ptr<ElementOwner>> memory() const;
    };

    void carry_out(group::Actions actions);
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

    Result<void> create_link(const group::CreateLink& action);
    [[nodiscard]] LinkDriver::Callbacks callbacks_for(group::GroupId group, std::uint8_t link, unsigned serial);
    void connected(const group::ConnectLink& of, const std::shared_ptr<LinkDriver>& driver, const Result<void>& result);
    // Tells the groups how many messages have arrived: all groups, or one.
    void hear();
    void hear(group::GroupId id);
    void tick();
    // Calls then(*this) later, on the control thread, if this object still exists.
    template <class Then>
    void post(Then then) {
        asio::post(io_, [weak = std::weak_ptr(self_), then = std::move(then)] {
            if (const auto self = weak.lock()) {
                then(**self);
            }
        });
    }
    [[nodiscard]] Live* live(group::GroupId group);
    [[nodiscard]] LiveLink* live(group::GroupId group, std::uint8_t link);

    asio::io_context& io_;
    Engines& engines_;
    const Config::Roce& config_;
    std::chrono::milliseconds last_messages_;
    Devices& devices_;
    unsigned last_serial_ = 0;
    // Connect queue pairs, which may wait for a neighbour's address: those of first links, and of further links, which
    // peers can make up.
    asio::thread_pool connecting_{4}, connecting_further_{4};
    // Destroys queue pairs, which may take seconds; lives until the last link has ended.
    std::shared_ptr<asio::thread_pool> destroying_ = std::make_shared<asio::thread_pool>(4);
    group::SmcrGroups groups_;
    std::map<group::GroupId, Live> live_;
    std::map<group::MemberId, Callbacks> callbacks_;
    std::deque<group::Action> pending_;
    bool carrying_out_ = false;
    loop::Deadline deadline_;
    const std::shared_ptr<LinkGroups*> self_ =
        std::make_shared<LinkGroups*>(this);  // weak in jobs that other threads post
};

// The Refusal for a link or a buffer that could not be created.
group::Refusal refusal_of(const Error& error);

}  // namespace smc::smcr
