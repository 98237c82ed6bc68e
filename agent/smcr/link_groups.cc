// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/smcr/link_groups.h"

#include <algorithm>
#include <asio/post.hpp>
#include <utility>

#include "agent/log/log.h"
#include "datapath/smcr/rmbe_transport.h"
#include "os/clock.h"
#include "os/random.h"
#include "os/rtnetlink.h"

namespace smc::smcr {

namespace {

using group::GroupId;
using group::Refusal;

// Destroying a queue pair takes longer only where packets of it wait for their way out.
constexpr std::chrono::milliseconds kWorthTelling{100};

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

Refusal refusal_of(const Error& error) {
    return error.code == ENOMEM                                      ? Refusal::kOutOfMemory
           : error.code == EHOSTUNREACH || error.code == ENETUNREACH ? Refusal::kUnreachable
           : error.code == ENODEV                                    ? Refusal::kNoDevice
                                                                     : Refusal::kDeviceFailed;
}

Error nobody_waits() {
    return {ECANCELED, "connecting a queue pair"};
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

void LinkGroups::join(group::MemberId member, bool server, const clc::SmcrPeer& peer, const RoceGid& local,
                      TimePoint deadline, Hooks hooks) {
    const auto device = devices_.usable_for(local, peer.version);
    if (!device) {
        return hooks.refused({member, Refusal::kNoDevice, "no RoCE port"});
    }
    hooks_.insert_or_assign(member, std::move(hooks));
    group::SmcrGroups::Join join{
        member,
        peer,
        {device->context->name(), device->port.number, device->gid.gid, peer.version, device->gid.mac,
         devices_.pnets().of_port(device->context->name(), device->port.number)},
        deadline,
        random_id<AlertToken>()};
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
    hooks_.erase(member);
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
                    // Soft-RoCE has no RoCEv1; there SMC-Rv1 goes by what there is.
                    const bool both = gids == &port.gids && port.gids_v1.empty();
                    const std::uint8_t version = gids == &port.gids ? 2 : 1;
                    ports.push_back({port.device, port.number, gid.gid, version, gid.mac, pnet});
                    if (both) {
                        ports.push_back({port.device, port.number, gid.gid, 1, gid.mac, pnet});
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

std::vector<std::shared_ptr<ElementOwner>> LinkGroups::Live::memory() const {
    std::vector<std::shared_ptr<ElementOwner>> out;
    for (const auto& [id, buffer] : buffers) {
        out.push_back(buffer);
    }
    return out;
}

void LinkGroups::on(const group::CreateLink& action) {
    if (const auto created = create_link(action); !created) {
        carry_out(groups_.link_refused(action.group, action.link, refusal_of(created.error()), created.error().text(),
                                       os::now()));
    }
}

// The hooks run on the engine's thread, and may outlive the group.
LinkDriver::Hooks LinkGroups::hooks_for(GroupId id, std::uint8_t number) {
    return {
        [&io = io_, weak = std::weak_ptr(self_), id, number](std::vector<std::uint8_t> message) {
            asio::post(io, [weak, id, number, message = std::move(message)] {
                const auto self = weak.lock();
                LiveLink* link = self ? (*self)->live(id, number) : nullptr;
                if (link != nullptr) {
                    link->driver->llc_done();
                    log()->debug("link group {} link {}: LLC type {:#04x} of {} bytes", static_cast<std::uint32_t>(id),
                                 number, message.empty() ? 0 : message[0], message.size());
                    (*self)->hear(id);
                    (*self)->carry_out((*self)->groups_.message(id, number, message, os::now()));
                }
            });
        },
        [&io = io_, weak = std::weak_ptr(self_), id, number](std::string why) {
            asio::post(io, [weak, id, number, why = std::move(why)] {
                if (const auto self = weak.lock()) {
                    (*self)->hear(id);
                    (*self)->carry_out((*self)->groups_.link_down(id, number, why, os::now()));
                }
            });
        },
        [graves = graves_, id, number](std::shared_ptr<void> remains) {
            asio::post(*graves, [remains = std::move(remains), id, number, begun = os::now()]() mutable {
                remains.reset();
                const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(os::now() - begun);
                if (took >= kWorthTelling) {
                    log()->info("link group {} link {}: its queue pair is destroyed after {} ms: its packets waited",
                                static_cast<std::uint32_t>(id), number, took.count());
                }
            });
        },
        [&io = io_, weak = std::weak_ptr(self_), id] {
            asio::post(io, [weak, id] {
                const auto self = weak.lock();
                if (const Live* group = self ? (*self)->live(id) : nullptr) {
                    for (const auto& [other, link] : group->links) {
                        group->engine->kick(link.driver);
                    }
                }
            });
        }};
}

Result<void> LinkGroups::create_link(const group::CreateLink& action) {
    const auto device = devices_.usable(action.port);
    if (!device) {
        return Error{ENODEV, "finding RoCE device " + action.port.device};
    }
    const GroupId id = action.group;
    Live& group = live_[id];
    LiveLink there;
    there.device = *device;
    // One for each device: its memory need not be registered twice.
    const auto known_pd =
        std::ranges::find_if(group.pds, [&](const auto& pd) { return pd->context() == device->context; });
    if (known_pd != group.pds.end()) {
        there.pd = *known_pd;
    } else {
        auto pd = roce::ProtectionDomain::allocate(device->context);
        if (!pd) {
            return pd.error();
        }
        there.pd = group.pds.emplace_back(std::move(*pd));
    }
    auto link = roce::RcLink::create(there.pd, device->port, device->gid, link_limits(config_));
    if (!link) {
        return link.error();
    }
    const QpEnd own = (*link)->end();
    there.driver = std::make_shared<LinkDriver>(std::move(*link), group.driver, action.link, hooks_for(id, action.link),
                                                last_messages_);
    if (group.engine == nullptr) {
        group.engine = &engines_.least_busy();
    }
    group.links[action.link] = std::move(there);
    const group::SmcrGroup* known = groups_.find(id);
    const bool direct = known != nullptr && is_direct(own.gid, known->key().peer_gid);
    carry_out(groups_.link_created(id, action.link, own, random_id<LinkId>(), direct, os::now()));
    return {};
}

// The kernel may have to ask for the neighbour's address, and waits a second for an answer.
void LinkGroups::on(const group::ConnectLink& action) {
    const LiveLink* there = live(action.group, action.link);
    if (there == nullptr) {
        return connected(action, nullptr, nobody_waits());
    }
    asio::post(blocking_, [&io = io_, weak = std::weak_ptr(self_), driver = there->driver, action]() mutable {
        // Nobody else has it: nobody waits for it.
        const auto result =
            driver.use_count() == 1 ? Result<void>(nobody_waits()) : driver->link().connect(action.peer);
        asio::post(io, [weak, action, driver = std::move(driver), result] {
            if (const auto self = weak.lock()) {
                (*self)->connected(action, driver, result);
            }
        });
    });
}

// The link may be gone meanwhile. The groups are told all the same: they count what is under way.
void LinkGroups::connected(const group::ConnectLink& of, const std::shared_ptr<LinkDriver>& driver,
                           const Result<void>& result) {
    const auto [id, number, peer] = of;
    const LiveLink* there = live(id, number);
    if (there != nullptr && there->driver != driver) {
        return;  // another one by now
    }
    if (!result || there == nullptr) {
        const Error why = result ? nobody_waits() : result.error();
        return carry_out(groups_.link_refused(id, number, refusal_of(why), why.text(), os::now()));
    }
    live(id)->engine->add_task(there->driver);
    carry_out(groups_.link_connected(id, number, os::now()));
}

void LinkGroups::on(const group::UseLink& action) {
    if (const LiveLink* there = live(action.group, action.link); there != nullptr) {
        live(action.group)->driver->use(action.link, there->driver);
    }
}

void LinkGroups::on(const group::RetireLink& action) {
    Live* group = live(action.group);
    if (const LiveLink* there = live(action.group, action.link); there != nullptr) {
        group->driver->retire(action.link);
        group->engine->kick(there->driver);
    }
}

void LinkGroups::on(const group::EndLink& action) {
    Live* group = live(action.group);
    if (const LiveLink* there = live(action.group, action.link); there != nullptr) {
        group->driver->retire(action.link);
        there->driver->keep(group->memory());  // the group may end before the link does
        there->driver->end(action.why, action.at_once);
        group->engine->kick(there->driver);
        group->links.erase(action.link);
    }
}

void LinkGroups::on(const group::EndGroup& action) {
    if (Live* group = live(action.group); group != nullptr) {
        group->driver->close();
        for (const auto& [number, link] : group->links) {
            link.driver->keep(group->memory());
            link.driver->end(action.why);
            group->engine->kick(link.driver);
        }
    }
}

void LinkGroups::on(const group::KnowRmb& action) {
    if (Live* group = live(action.group); group != nullptr) {
        group->driver->know(action.tokens);
    }
}

void LinkGroups::on(const group::ForgetRmb& action) {
    if (Live* group = live(action.group); group != nullptr) {
        group->driver->forget_rmb(action.tokens);
    }
}

void LinkGroups::on(const group::RegisterBuffer& action) {
    Live* group = live(action.group);
    const LiveLink* there = live(action.group, action.link);
    if (group == nullptr || there == nullptr) {
        return;  // the link could not be created
    }
    const GroupId id = action.group;
    const group::BufferId buffer = action.buffer;
    const auto refused = [&](const Error& error) {
        carry_out(groups_.buffer_refused(id, buffer, action.link, refusal_of(error), error.text(), os::now()));
    };
    if (!group->buffers.contains(buffer)) {
        auto allocated = Buffer::allocate(action.kind, config_.rmbe_kib * 1024, config_.rmbes_per_rmb,
                                          [&io = io_, weak = std::weak_ptr(self_), id, buffer](std::size_t element) {
                                              asio::post(io, [weak, id, buffer, element] {
                                                  if (const auto self = weak.lock()) {
                                                      (*self)->carry_out((*self)->groups_.element_returned(
                                                          id, buffer, static_cast<std::uint8_t>(element), os::now()));
                                                  }
                                              });
                                          });
        if (!allocated) {
            return refused(allocated.error());
        }
        group->buffers.emplace(buffer, std::move(*allocated));
    }
    const auto token = group->buffers.at(buffer)->register_for(action.link, there->pd);
    if (!token) {
        return refused(token.error());
    }
    carry_out(groups_.buffer_registered(id, buffer, action.link, token->rkey, token->address, os::now()));
}

void LinkGroups::on(const group::DropBuffer& action) {
    if (Live* there = live(action.group); there != nullptr) {
        there->buffers.erase(action.buffer);
    }
}

// A last message of a connection goes by whatever link there is.
void LinkGroups::on(const group::SendMessage& action) {
    Live* group = live(action.group);
    const LiveLink* there = live(action.group, action.link);
    std::uint8_t number = action.link;
    if (group != nullptr && there == nullptr && !group->links.empty()) {
        number = group->links.begin()->first;
        there = &group->links.begin()->second;
    }
    if (there == nullptr) {
        return;
    }
    if (!there->driver->send_soon(action.bytes)) {
        post([id = action.group, number](LinkGroups& self) {
            self.carry_out(
                self.groups_.link_down(id, number, "the send queue is full: the peer accepts no messages", os::now()));
        });
    }
    group->engine->kick(there->driver);
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
        there->driver->linger(action.assignment.token,
                              there->buffers.at(action.assignment.rmb)->element(action.assignment.rmbe));
    }
}

void LinkGroups::on(const group::EndConnection& action) {
    if (Live* there = live(action.group); there != nullptr) {
        there->driver->peer_left(action.token);
        for (const auto& [number, link] : there->links) {
            there->engine->kick(link.driver);
        }
    }
}

void LinkGroups::on(const group::ForgetGroup& action) {
    live_.erase(action.group);
}

// --- telling --------------------------------------------------------------------------------------------------------

void LinkGroups::on(const group::Joined& action) {
    if (Live* there = live(action.group); there != nullptr && action.assignment.rmbe_was_used) {
        const auto rmbe = there->buffers.at(action.assignment.rmb)->bytes_of(action.assignment.rmbe);
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
    if (group == nullptr || group->links().all().empty()) {
        return;
    }
    const clc::SmcrPeer& peer = group->peer();
    const group::GroupLink& first = group->links().all().begin()->second;
    log()->info("link group {} with {} ({}) is up: {} of {}, {} {}, version {}, {}",
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
        log()->warn("link group {} has lost link {}: {}; it is {} now", id, action.link, action.why, type);
    } else if (const group::GroupLink* link = group->links().find(action.link)) {
        log()->info("link group {} has link {}: {}, {} to {}; it is {} now", id, action.link, link->port.device,
                    link->own.gid.text(), link->peer.gid.text(), type);
    }
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
