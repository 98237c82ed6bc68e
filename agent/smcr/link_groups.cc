// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/smcr/link_groups.h"

#include <algorithm>
#include <asio/post.hpp>

#include "agent/log/log.h"
#include "datapath/smcr/rmbe_transport.h"
#include "os/random.h"
#include "os/rtnetlink.h"

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
    terms.eye_catchers = config.eye_catchers;
    terms.idle = config.group_idle;
    terms.llc_timeout = config.llc_timeout;
    terms.test_interval = config.test_link;
    return terms;
}

Refusal refusal_of(const Error& error) {
    return error.code == ENOMEM                                      ? Refusal::kOutOfMemory
           : error.code == EHOSTUNREACH || error.code == ENETUNREACH ? Refusal::kUnreachable
           : error.code == ENODEV                                    ? Refusal::kNoDevice
                                                                     : Refusal::kDeviceFailed;
}

Endpoint endpoint_of(const RoceGid& gid) {
    return {gid.normalised().bytes, 0};
}

bool is_direct(const RoceGid& own, const RoceGid& peer) {
    const auto rtnetlink = Rtnetlink::open();
    return rtnetlink && rtnetlink->is_direct(endpoint_of(own), endpoint_of(peer));
}

template <class Id>
Id random_id() {
    std::uint32_t value = 0;
    while (value == 0) {
        value = random_number<std::uint32_t>();
    }
    return Id{value};
}

RemoteRmbe remote_of(const clc::Rmbe& rmbe) {
    const std::uint32_t bytes = bytes_of(rmbe.size);
    const auto address = static_cast<std::uint64_t>(rmbe.rmb_address) + std::uint64_t{bytes} * (rmbe.index - 1U);
    return {rmbe.rkey, VirtualAddress{address}, rmbe.token, bytes};
}

}  // namespace

LinkGroups::LinkGroups(asio::io_context& io, Engines& engines, const Config::Roce& config, Devices& devices)
    : io_(io), engines_(engines), config_(config), devices_(devices), groups_(terms_of(config)), deadline_(io, [this] {
          tick();
      }) {}

LinkGroups::~LinkGroups() {
    blocking_.stop();
    blocking_.join();
}

// Later, on the control thread, if this object is still there.
template <class Then>
void LinkGroups::post(Then then) {
    asio::post(io_, [weak = std::weak_ptr(self_), then = std::move(then)] {
        if (const auto self = weak.lock()) {
            then(**self);
        }
    });
}

LinkGroups::Live* LinkGroups::live(GroupId group) {
    const auto it = live_.find(group);
    return it == live_.end() ? nullptr : &it->second;
}

// --- members --------------------------------------------------------------------------------------------------------

void LinkGroups::join(group::MemberId member, bool server, const clc::SmcrPeer& peer, const RoceGid& local,
                      TimePoint deadline, Hooks hooks) {
    const auto device = devices_.usable_for(local, peer.version);
    if (!device) {
        return hooks.refused({member, Refusal::kNoDevice, "no RoCE port"});
    }
    hooks_.insert_or_assign(member, std::move(hooks));
    group::SmcrGroups::Join join{member,
                                 peer,
                                 {device->context->name(), device->port.number, device->gid.gid, peer.version},
                                 deadline,
                                 random_id<AlertToken>()};
    const TimePoint now = loop::now();
    carry_out(server ? groups_.join_as_server(std::move(join), now) : groups_.join_as_client(std::move(join), now));
}

void LinkGroups::await_link(group::MemberId member, const clc::SmcrPeer& peer) {
    carry_out(groups_.await_link(member, peer, loop::now()));
}

void LinkGroups::await_peer(group::MemberId member) {
    const group::SmcrGroup* group = groups_.group_of(member);
    const group::Seat* seat = groups_.seat_of(member);
    Live* there = group != nullptr ? live(group->id()) : nullptr;
    if (there == nullptr || seat == nullptr) {
        return;
    }
    there->driver->await_message(seat->token, [&io = io_, weak = std::weak_ptr(self_), member](bool aborts) {
        asio::post(io, [weak, member, aborts] {
            const auto self = weak.lock();
            if (!self) {
                return;
            }
            auto& hooks = (*self)->hooks_;
            if (const auto it = hooks.find(member); it != hooks.end()) {
                const auto spoke = it->second.peer_spoke;  // who is told may leave
                spoke(aborts);
            }
        });
    });
}

std::unique_ptr<Transport> LinkGroups::run(group::MemberId member, const clc::Rmbe& peer) {
    const group::SmcrGroup* group = groups_.group_of(member);
    const group::Seat* seat = groups_.seat_of(member);
    Live* there = group != nullptr ? live(group->id()) : nullptr;
    if (there == nullptr || seat == nullptr) {
        return nullptr;
    }
    RmbeTransport::Parts parts{there->driver,
                               seat->token,
                               there->buffers.at(seat->rmb)->element(seat->rmbe),
                               there->buffers.at(seat->send)->element(seat->send_element),
                               remote_of(peer),
                               group->eye_catchers()};
    groups_.running(member);
    return std::make_unique<RmbeTransport>(std::move(parts));
}

void LinkGroups::leave(group::MemberId member, const group::SmcrGroups::Leaving& how) {
    hooks_.erase(member);
    carry_out(groups_.leave(member, how, loop::now()));
}

void LinkGroups::device_gone(const std::string& name) {
    carry_out(groups_.device_gone(name, loop::now()));
}

void LinkGroups::end_all() {
    carry_out(groups_.end_all(loop::now()));
}

// --- carrying out ---------------------------------------------------------------------------------------------------

void LinkGroups::carry_out(group::Actions actions) {
    std::move(actions.begin(), actions.end(), std::back_inserter(pending_));
    if (carrying_out_) {
        return;  // what an action brings about comes behind those that are under way
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

void LinkGroups::on(const group::CreateLink& action) {
    if (const auto created = create_link(action); !created) {
        carry_out(groups_.link_refused(action.group, refusal_of(created.error()), created.error().text(), loop::now()));
    }
}

Result<void> LinkGroups::create_link(const group::CreateLink& action) {
    const auto device = devices_.usable_for(action.port.gid, action.port.version);
    if (!device) {
        return Error{ENODEV, "finding RoCE device " + action.port.device};
    }
    Live there;
    there.device = *device;
    auto pd = roce::ProtectionDomain::allocate(device->context);
    if (!pd) {
        return pd.error();
    }
    there.pd = std::move(*pd);
    auto link = roce::RcLink::create(there.pd, device->port, device->gid, link_limits(config_));
    if (!link) {
        return link.error();
    }
    if (action.spare) {
        roce::LinkLimits little;
        little.sends = little.receives = 16;
        auto spare = roce::RcLink::create(there.pd, device->port, device->gid, little);
        if (!spare) {
            return spare.error();
        }
        there.spare = std::move(*spare);
    }
    const GroupId id = action.group;
    // The hooks run on the engine's thread, and may outlive the group.
    LinkDriver::Hooks hooks{
        [&io = io_, weak = std::weak_ptr(self_), id](std::vector<std::uint8_t> message) {
            asio::post(io, [weak, id, message = std::move(message)] {
                const auto self = weak.lock();
                Live* group = self ? (*self)->live(id) : nullptr;
                if (group != nullptr) {
                    group->driver->llc_done();
                    log()->debug("link group {}: LLC type {:#04x} of {} bytes", static_cast<std::uint32_t>(id),
                                 message.empty() ? 0 : message[0], message.size());
                    (*self)->carry_out((*self)->groups_.message(id, llc::kFirstLink, message, loop::now()));
                }
            });
        },
        [&io = io_, weak = std::weak_ptr(self_), id](std::string why) {
            asio::post(io, [weak, id, why = std::move(why)] {
                if (const auto self = weak.lock()) {
                    (*self)->carry_out((*self)->groups_.link_down(id, why, loop::now()));
                }
            });
        }};
    const QpEnd own = (*link)->end();
    const auto spare = there.spare ? std::optional(there.spare->end()) : std::nullopt;
    there.driver = std::make_shared<LinkDriver>(std::move(*link), std::move(hooks), config_.busy_poll);
    there.engine = &engines_.least_busy();
    live_.emplace(id, std::move(there));
    const group::SmcrGroup* group = groups_.find(id);
    const bool direct = group != nullptr && group->key().server && is_direct(own.gid, group->key().peer_gid);
    carry_out(groups_.link_created(id, own, spare, random_id<LinkId>(), direct, loop::now()));
    return {};
}

// The kernel may have to ask for the neighbour's address, and waits a second for an answer.
void LinkGroups::on(const group::ConnectLink& action) {
    Live* there = live(action.group);
    if (there == nullptr) {
        return;
    }
    asio::post(blocking_, [&io = io_, weak = std::weak_ptr(self_), driver = there->driver, action] {
        const auto result = driver->link().connect(action.peer);
        asio::post(io, [weak, id = action.group, result] {
            if (const auto self = weak.lock()) {
                (*self)->connected(id, result);
            }
        });
    });
}

void LinkGroups::connected(GroupId id, const Result<void>& result) {
    const group::SmcrGroup* group = groups_.find(id);
    Live* there = live(id);
    if (group == nullptr || there == nullptr || group->state() != group::SmcrGroup::State::kConnecting) {
        return;  // nobody waits for it any more
    }
    if (!result) {
        return carry_out(groups_.link_refused(id, refusal_of(result.error()), result.error().text(), loop::now()));
    }
    there->engine->add_task(there->driver);
    carry_out(groups_.link_connected(id, loop::now()));
}

void LinkGroups::on(const group::RegisterBuffer& action) {
    Live* there = live(action.group);
    if (there == nullptr) {
        return;  // the link could not be created
    }
    const GroupId id = action.group;
    const group::BufferId buffer = action.buffer;
    auto allocated = Buffer::allocate(there->pd, action.kind, config_.rmbe_kib * 1024, config_.rmbes_per_rmb,
                                      [&io = io_, weak = std::weak_ptr(self_), id, buffer](std::size_t element) {
                                          asio::post(io, [weak, id, buffer, element] {
                                              if (const auto self = weak.lock()) {
                                                  (*self)->carry_out((*self)->groups_.element_returned(
                                                      id, buffer, static_cast<std::uint8_t>(element), loop::now()));
                                              }
                                          });
                                      });
    if (!allocated) {
        carry_out(
            groups_.buffer_refused(id, buffer, refusal_of(allocated.error()), allocated.error().text(), loop::now()));
        return;
    }
    const auto& memory = there->buffers.emplace(buffer, std::move(*allocated)).first->second;
    carry_out(groups_.buffer_registered(id, buffer, memory->rkey(), memory->address(), loop::now()));
}

void LinkGroups::on(const group::DropBuffer& action) {
    if (Live* there = live(action.group); there != nullptr) {
        there->buffers.erase(action.buffer);
    }
}

void LinkGroups::on(const group::SendMessage& action) {
    Live* there = live(action.group);
    if (there == nullptr) {
        return;
    }
    if (!there->driver->send_soon(action.bytes)) {
        post([id = action.group](LinkGroups& self) {
            self.carry_out(self.groups_.link_down(id, "the peer does not take what it is sent", loop::now()));
        });
    }
    there->engine->kick(there->driver);
}

void LinkGroups::on(const group::OpenToken& action) {
    if (Live* there = live(action.group); there != nullptr) {
        there->driver->open(action.token);
    }
}

void LinkGroups::on(const group::ForgetToken& action) {
    if (Live* there = live(action.group); there != nullptr) {
        there->driver->forget(action.token);
    }
}

void LinkGroups::on(const group::LingerToken& action) {
    if (Live* there = live(action.group); there != nullptr) {
        there->driver->linger(action.seat.token, there->buffers.at(action.seat.rmb)->element(action.seat.rmbe));
    }
}

void LinkGroups::on(const group::EndConnection& action) {
    if (Live* there = live(action.group); there != nullptr) {
        there->driver->peer_left(action.token);
        there->engine->kick(there->driver);
    }
}

void LinkGroups::on(const group::EndLink& action) {
    if (Live* there = live(action.group); there != nullptr) {
        there->driver->end(action.why);
        there->engine->kick(there->driver);
    }
}

void LinkGroups::on(const group::ForgetGroup& action) {
    live_.erase(action.group);
}

// --- telling --------------------------------------------------------------------------------------------------------

void LinkGroups::on(const group::Joined& action) {
    if (Live* there = live(action.group); there != nullptr && action.seat.rmbe_was_used) {
        const auto rmbe = there->buffers.at(action.seat.rmb)->bytes_of(action.seat.rmbe);
        std::ranges::fill(rmbe, std::uint8_t{0});
    }
    if (const auto it = hooks_.find(action.member); it != hooks_.end()) {
        const auto joined = it->second.joined;  // who is told may leave
        joined(action);
    }
}

void LinkGroups::on(const group::JoinRefused& action) {
    if (const auto it = hooks_.find(action.member); it != hooks_.end()) {
        const auto refused = it->second.refused;
        hooks_.erase(it);
        refused(action);
    }
}

void LinkGroups::on(const group::LinkReady& action) {
    if (const auto it = hooks_.find(action.member); it != hooks_.end()) {
        const auto ready = it->second.link_ready;
        ready();
    }
}

void LinkGroups::on(const group::LinkFailed& action) {
    if (const auto it = hooks_.find(action.member); it != hooks_.end()) {
        const auto failed = it->second.link_failed;
        failed(action);
    }
}

void LinkGroups::on(const group::GroupUp& action) {
    const group::SmcrGroup* group = groups_.find(action.group);
    Live* there = live(action.group);
    if (group == nullptr || there == nullptr) {
        return;
    }
    there->spare.reset();
    const clc::SmcrPeer& peer = group->peer();
    log()->info("link group {} with {} ({}) is up: {} of {}, {} {}, version {}",
                static_cast<std::uint32_t>(action.group), peer.link.gid.text(),
                peer.host_name.empty() ? "no name" : peer.host_name, group->key().server ? "server" : "client",
                group->port().device, group->own().gid.text(), text(group->own().qpn), group->key().version);
}

void LinkGroups::on(const group::GroupOver& action) {
    const std::string peer = action.peer.text();
    const auto id = static_cast<std::uint32_t>(action.group);
    if (action.connections == 0) {
        log()->info("link group {} with {} ended: {}", id, peer, action.detail);
    } else {
        log()->warn("link group {} with {} ended, {} connections are lost: {} ({})", id, peer, action.connections,
                    reason_name(action.reason), action.detail);
    }
}

// --- time -----------------------------------------------------------------------------------------------------------

void LinkGroups::tick() {
    const TimePoint now = loop::now();
    for (const auto& [id, there] : live_) {
        groups_.heard(id, llc::kFirstLink, there.driver->counters().messages_received.load(std::memory_order_relaxed),
                      now);
    }
    carry_out(groups_.tick(now));
}

// --- for display ----------------------------------------------------------------------------------------------------

void LinkGroups::for_each(const Visit& visit) const {
    for (const group::SmcrGroup* group : groups_.all()) {
        if (const auto it = live_.find(group->id()); it != live_.end()) {
            visit(*group, it->second.device, it->second.driver->counters());
        }
    }
}

const Devices::Usable* LinkGroups::device_of(GroupId group) const {
    const auto it = live_.find(group);
    return it == live_.end() ? nullptr : &it->second.device;
}

}  // namespace smc::smcr
