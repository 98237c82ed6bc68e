// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/smcr/link_groups.h"

#include <algorithm>
#include <asio/post.hpp>
#include <utility>

#include "agent/log/log.h"
#include "datapath/smcr/rmbe_transport.h"
#include "os/clock.h"
#include "os/random.h"

namespace smc::smcr {

namespace {

using group::GroupId;
using group::Refusal;

group::SmcrTerms terms_of(const Config::Roce& config) {
    group::SmcrTerms terms;
    terms.rmbe_bytes = config.rmbe_kib * 1024;
    terms.rmbes_per_rmb = static_cast<std::uint8_t>(config.rmbes_per_rmb);
    terms.link_bytes = roce::message_bytes(link_limits(config));
    terms.memory_limit = std::size_t{config.memory_mib} << 20;
    terms.idle = config.group_idle;
    terms.llc_timeout = config.llc_timeout;
    terms.test_interval = config.test_link;
    terms.link_retry = config.link_retry;
    return terms;
}

RemoteRmbe remote_of(std::uint8_t link, const clc::Rmbe& rmbe) {
    const std::uint32_t bytes = bytes_of(rmbe.size);
    return {link, rmbe.rkey, rmbe.rmb_address, std::uint64_t{bytes} * (rmbe.index - 1U), rmbe.token, bytes};
}

}  // namespace

LinkGroups::LinkGroups(asio::io_context& io, Engines& engines, const Config& config, Devices& devices)
    : io_(io),
      engines_(engines),
      config_(config.roce),
      last_messages_(config.times.last_messages),
      devices_(devices),
      groups_(terms_of(config.roce)),
      deadline_(io, [this] { tick(); }) {}

LinkGroups::~LinkGroups() {
    for (asio::thread_pool* pool : {&connecting_, &connecting_further_}) {
        pool->stop();
        pool->join();
    }
}

LinkGroups::Live* LinkGroups::live(GroupId group) {
    const auto it = live_.find(group);
    return it == live_.end() ? nullptr : &it->second;
}

LinkGroups::LiveLink* LinkGroups::live(GroupId group, std::uint8_t link) {
    return const_cast<LiveLink*>(std::as_const(*this).find(group, link));
}

const LinkGroups::LiveLink* LinkGroups::find(GroupId group, std::uint8_t link) const {
    const auto there = live_.find(group);
    if (there == live_.end()) {
        return nullptr;
    }
    const auto it = there->second.links.find(link);
    return it == there->second.links.end() ? nullptr : &it->second;
}

std::uint8_t LinkGroups::link_of(GroupId group, AlertToken token) const {
    const auto there = live_.find(group);
    return there == live_.end() ? std::uint8_t{0} : there->second.driver->link_of(token);
}

// --- members --------------------------------------------------------------------------------------------------------

void LinkGroups::join(group::MemberId member, bool server, const clc::SmcrPeer& peer, const Devices::Local& local,
                      const group::ElementBytes& bytes, TimePoint deadline, Callbacks callbacks) {
    const auto device = devices_.usable_for(local, peer.version);
    if (!device) {
        return callbacks.refused({member, Refusal::kNoDevice, "no RoCE port"});
    }
    callbacks_.insert_or_assign(member, std::move(callbacks));
    group::SmcrGroups::Join join{
        member,
        peer,
        {device->context->name(), device->port.number, device->gid.gid, peer.version, device->gid.mac,
         devices_.pnets().of_port(device->context->name(), device->port.number), device->gid.vlan},
        *local.vlan,
        deadline,
        AlertToken{random_nonzero<std::uint32_t>()},
        bytes};
    const TimePoint now = os::now();
    groups_.set_in_use(roce::Memory::in_use());
    carry_out(server ? groups_.join_as_server(std::move(join), now) : groups_.join_as_client(std::move(join), now));
}

void LinkGroups::await_link(group::MemberId member, const clc::SmcrPeer& peer) {
    carry_out(groups_.await_link(member, peer, os::now()));
}

void LinkGroups::await_peer(group::MemberId member) {
    const group::SmcrGroup* group = groups_.group_of(member);
    const group::Assignment* assignment = groups_.assignment_of(member);
    Live* there = group != nullptr ? live(group->id()) : nullptr;
    if (there == nullptr || assignment == nullptr) {
        return;
    }
    there->driver->await_message(assignment->token, [&io = io_, weak = std::weak_ptr(self_), member](bool aborts) {
        asio::post(io, [weak, member, aborts] {
            const auto self = weak.lock();
            if (!self) {
                return;
            }
            auto& callbacks = (*self)->callbacks_;
            if (const auto it = callbacks.find(member); it != callbacks.end()) {
                const auto announced = it->second.first_message;  // a copy: the callback may call leave()
                announced(aborts);
            }
        });
    });
}

std::unique_ptr<Transport> LinkGroups::run(group::MemberId member, const clc::Rmbe& peer) {
    const group::SmcrGroup* group = groups_.group_of(member);
    const group::Assignment* assignment = groups_.assignment_of(member);
    Live* there = group != nullptr ? live(group->id()) : nullptr;
    if (there == nullptr || assignment == nullptr) {
        return nullptr;
    }
    RmbeTransport::Parts parts{there->driver,
                               assignment->token,
                               there->buffers.at(assignment->rmb)->element(assignment->rmbe),
                               there->buffers.at(assignment->send)->element(assignment->send_element),
                               remote_of(groups_.peer_link_of(member), peer),
                               group->eye_catchers()};
    groups_.running(member);
    return std::make_unique<RmbeTransport>(std::move(parts));
}

void LinkGroups::leave(group::MemberId member, const group::SmcrGroups::Leaving& how) {
    callbacks_.erase(member);
    carry_out(groups_.leave(member, how, os::now()));
}

void LinkGroups::device_gone(const std::string& name) {
    hear();
    carry_out(groups_.device_gone(name, os::now()));
}

void LinkGroups::ports_changed() {
    std::vector<group::LocalPort> ports, down;
    for (const roce::Port& port : devices_.ports()) {
        if (!port.active) {
            down.push_back({port.device, port.number, {}});
        }
        const std::string pnet = devices_.pnets().of_port(port.device, port.number);
        for (const auto* gids : {&port.gids, &port.gids_v1}) {
            for (const roce::PortGid& gid : *gids) {
                if (port.active && !roce::is_link_local(gid.gid)) {
                    // Soft-RoCE has no RoCEv1 GIDs: SMC-Rv1 uses RoCEv2 there.
                    const bool both = gids == &port.gids && port.gids_v1.empty();
                    const std::uint8_t version = gids == &port.gids ? 2 : 1;
                    ports.push_back({port.device, port.number, gid.gid, version, gid.mac, pnet, gid.vlan});
                    if (both) {
                        ports.push_back({port.device, port.number, gid.gid, 1, gid.mac, pnet, gid.vlan});
                    }
                }
            }
        }
    }
    hear();
    carry_out(groups_.set_ports(std::move(ports), std::move(down), os::now()));
}

void LinkGroups::end_all() {
    carry_out(groups_.end_all(os::now()));
}

// --- carrying out ---------------------------------------------------------------------------------------------------

void LinkGroups::carry_out(group::Actions actions) {
    std::move(actions.begin(), actions.end(), std::back_inserter(pending_));
    if (carrying_out_) {
        return;  // called by an action that is being carried out: the loop below goes on with the new ones
    }
    carrying_out_ = true;
    while (!pending_.empty()) {
        const group::Action action = std::move(pending_.front());
        pending_.pop_front();
        std::visit([this](const auto& a) { on(a); }, action);
    }
    carrying_out_ = false;
    deadline_.set(groups_.next_deadline());
}

// --- telling --------------------------------------------------------------------------------------------------------

void LinkGroups::on(const group::Joined& action) {
    if (Live* there = live(action.group); there != nullptr && action.assignment.rmbe_was_used) {
        const auto rmbe = there->buffers.at(action.assignment.rmb)->bytes_of(action.assignment.rmbe);
        std::ranges::fill(rmbe, std::uint8_t{0});
    }
    if (const auto it = callbacks_.find(action.member); it != callbacks_.end()) {
        const auto joined = it->second.joined;  // a copy: the callback may call leave()
        joined(action);
    }
}

void LinkGroups::on(const group::JoinRefused& action) {
    if (const auto it = callbacks_.find(action.member); it != callbacks_.end()) {
        const auto refused = it->second.refused;
        callbacks_.erase(it);
        refused(action);
    }
}

void LinkGroups::on(const group::LinkReady& action) {
    if (const auto it = callbacks_.find(action.member); it != callbacks_.end()) {
        const auto ready = it->second.link_ready;
        ready();
    }
}

void LinkGroups::on(const group::LinkFailed& action) {
    if (const auto it = callbacks_.find(action.member); it != callbacks_.end()) {
        const auto failed = it->second.link_failed;
        failed(action);
    }
}

void LinkGroups::on(const group::GroupUp& action) {
    const group::SmcrGroup* group = groups_.find(action.group);
    if (group == nullptr || group->links().all().empty()) {
        return;
    }
    const clc::SmcrPeer& peer = group->peer();
    const group::GroupLink& first = group->links().all().begin()->second;
    log()->limited(LogLevel::kInfo,
                   "link group {} with {} ({}) is up: role {}, device {}, GID {}, QP {}, version {}, {}",
                   static_cast<std::uint32_t>(action.group), peer.link.gid.text(),
                   peer.host_name.empty() ? "no name" : peer.host_name, group->key().server ? "server" : "client",
                   first.port.device, first.own.gid.text(), text(first.own.qpn), group->key().version,
                   group::text(group->links().type()));
}

void LinkGroups::on(const group::LinkChanged& action) {
    const group::SmcrGroup* group = groups_.find(action.group);
    if (group == nullptr) {
        return;
    }
    const auto id = static_cast<std::uint32_t>(action.group);
    const char* type = group::text(group->links().type());
    if (!action.up) {
        log()->limited(LogLevel::kWarn, "link group {} has lost link {}: {}; the group is {} now", id, action.link,
                       action.why, type);
    } else if (const group::GroupLink* link = group->links().find(action.link)) {
        log()->limited(LogLevel::kInfo, "link group {}: link {} is up: {}, {} to {}; the group is {} now", id,
                       action.link, link->port.device, link->own.gid.text(), link->peer.gid.text(), type);
    }
}

void LinkGroups::on(const group::GroupOver& action) {
    const std::string peer = action.peer.text();
    const auto id = static_cast<std::uint32_t>(action.group);
    if (action.connections == 0) {
        log()->limited(LogLevel::kInfo, "link group {} with {} ended: {}", id, peer, action.detail);
    } else {
        log()->warn("link group {} with {} ended, {} connections are reset: {} ({})", id, peer, action.connections,
                    reason_name(action.reason), action.detail);
    }
}

// --- time -----------------------------------------------------------------------------------------------------------

void LinkGroups::hear() {
    for (const auto& [id, there] : live_) {
        hear(id);
    }
}

void LinkGroups::hear(GroupId id) {
    if (const Live* there = live(id)) {
        for (const auto& [number, link] : there->links) {
            groups_.heard(id, number, link.driver->counters().messages_received.load(std::memory_order_relaxed),
                          os::now());
        }
    }
}

std::size_t LinkGroups::registered() const {
    return std::max(groups_.registered(), roce::Memory::in_use());
}

void LinkGroups::tick() {
    hear();
    groups_.set_in_use(roce::Memory::in_use());
    carry_out(groups_.tick(os::now()));
}

}  // namespace smc::smcr
