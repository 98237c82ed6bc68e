// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "link_groups.h"

#include <algorithm>

#include "datapath/smcr/rmbe_transport.h"

namespace smc::sim {

namespace {

using group::GroupId;
using group::Refusal;

std::string name(GroupId id) {
    return "link group " + std::to_string(static_cast<std::uint32_t>(id));
}

smcr::RemoteRmbe remote_of(const clc::Rmbe& rmbe) {
    const std::uint32_t bytes = bytes_of(rmbe.size);
    const auto address = static_cast<std::uint64_t>(rmbe.rmb_address) + std::uint64_t{bytes} * (rmbe.index - 1U);
    return {rmbe.rkey, VirtualAddress{address}, rmbe.token, bytes};
}

}  // namespace

LinkGroups::LinkGroups(World& world, std::string node, Engine& engine, const SimLink::Network& network, Port& port,
                       const group::SmcrTerms& terms)
    : world_(world),
      node_(std::move(node)),
      engine_(engine),
      network_(network),
      port_(port),
      terms_(terms),
      groups_(terms),
      deadline_(world, [this] { tick(); }) {}

LinkGroups::Live* LinkGroups::live(GroupId group) {
    const auto it = live_.find(group);
    return it == live_.end() ? nullptr : &it->second;
}

// --- members --------------------------------------------------------------------------------------------------------

void LinkGroups::join(group::MemberId member, bool server, const clc::SmcrPeer& peer, TimePoint deadline, Hooks hooks) {
    hooks_.insert_or_assign(member, std::move(hooks));
    group::SmcrGroups::Join join{member,
                                 peer,
                                 {"sim", 1, port_.gid},
                                 deadline,
                                 AlertToken{static_cast<std::uint32_t>(world_.between(1, 0xffffffff))}};
    carry_out(server ? groups_.join_as_server(std::move(join), world_.now())
                     : groups_.join_as_client(std::move(join), world_.now()));
}

void LinkGroups::await_link(group::MemberId member, const clc::SmcrPeer& peer) {
    const group::SmcrGroup& group = *groups_.group_of(member);
    world_.require(peer.first_contact || group.state() == group::SmcrGroup::State::kOver || group.knows(peer.rmbe.rkey),
                   node_ + ": the peer names an RMB that it never had confirmed (G2)");
    awaiting_.emplace(member, group.id());
    carry_out(groups_.await_link(member, peer, world_.now()));
}

void LinkGroups::await_peer(group::MemberId member) {
    const group::SmcrGroup* group = groups_.group_of(member);
    const group::Seat* seat = groups_.seat_of(member);
    Live* there = group != nullptr ? live(group->id()) : nullptr;
    if (there == nullptr || seat == nullptr) {
        return;
    }
    there->driver->await_message(seat->token, [this, member](bool aborts) {
        world_.after(world_.local(), [this, member, aborts] {
            if (const auto it = hooks_.find(member); it != hooks_.end()) {
                const auto spoke = it->second.peer_spoke;
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
    smcr::RmbeTransport::Parts parts{there->driver,
                                     seat->token,
                                     there->buffers.at(seat->rmb)->element(seat->rmbe),
                                     there->buffers.at(seat->send)->element(seat->send_element),
                                     remote_of(peer),
                                     group->eye_catchers()};
    groups_.running(member);
    return std::make_unique<smcr::RmbeTransport>(std::move(parts));
}

void LinkGroups::leave(group::MemberId member, const group::SmcrGroups::Leaving& how) {
    hooks_.erase(member);
    awaiting_.erase(member);
    carry_out(groups_.leave(member, how, world_.now()));
}

void LinkGroups::end_all() {
    carry_out(groups_.end_all(world_.now()));
}

std::map<std::uint32_t, std::uint32_t> LinkGroups::active() const {
    std::map<std::uint32_t, std::uint32_t> out;
    for (const group::SmcrGroup* group : groups_.all()) {
        world_.require(group->active(), node_ + ": " + name(group->id()) + " is quiet, but neither up nor over");
        world_.require(group->connections() == 0, node_ + ": " + name(group->id()) + " has members, and all have left");
        out.emplace(static_cast<std::uint32_t>(group->own().qpn), static_cast<std::uint32_t>(group->peer().link.qpn));
    }
    return out;
}

void LinkGroups::check_all_is_gone() const {
    world_.require(groups_.all().empty(), node_ + ": a link group outlives end_all()");
    world_.require(live_.empty(), node_ + ": a link group that is over is never forgotten");
    world_.require(groups_.registered() == 0,
                   node_ + ": " + std::to_string(groups_.registered()) + " bytes stay registered");
    world_.require(engine_.tasks() == 0, node_ + ": the data path still drives something");
    world_.require(port_.links.empty(), node_ + ": a queue pair is left");
    world_.require(std::ranges::all_of(port_.memory, [](const auto& entry) { return entry.second.expired(); }),
                   node_ + ": registered memory is left");
}

// --- carrying out ---------------------------------------------------------------------------------------------------

void LinkGroups::carry_out(group::Actions actions) {
    std::move(actions.begin(), actions.end(), std::back_inserter(pending_));
    if (carrying_out_) {
        return;
    }
    carrying_out_ = true;
    while (!pending_.empty()) {
        const group::Action action = std::move(pending_.front());
        pending_.pop_front();
        std::visit([this](const auto& a) { on(a); }, action);
    }
    carrying_out_ = false;
    check();
    deadline_.set(groups_.next_deadline());
}

// G4: whoever waits for the link of a group that is over was told.
void LinkGroups::check() const {
    for (const auto& [member, id] : awaiting_) {
        const group::SmcrGroup* group = groups_.find(id);
        world_.require(group != nullptr && group->state() != group::SmcrGroup::State::kOver,
                       node_ + ": a connection waits for the link of a group that is over (G4)");
    }
}

void LinkGroups::on(const group::CreateLink& action) {
    const GroupId id = action.group;
    if (world_.strikes(Mishap::kLinkRefused)) {
        return carry_out(groups_.link_refused(id, Refusal::kDeviceFailed, "simulated", world_.now()));
    }
    auto link = std::make_unique<SimLink>(
        world_, network_, port_,
        static_cast<std::uint32_t>(world_.chance(50) ? world_.between(6, 8) : world_.between(9, 64)));
    std::optional<QpEnd> spare;
    if (action.spare) {
        spare = link->end();
        spare->qpn = Qpn{port_.next_number++};
    }
    const QpEnd own = link->end();
    smcr::LinkDriver::Hooks hooks{
        [this, id](std::vector<std::uint8_t> message) {
            world_.after(world_.local(), [this, id, message = std::move(message)] {
                if (Live* there = live(id)) {
                    there->driver->llc_done();
                    tell(name(id) + " hears LLC type " + std::to_string(message.empty() ? 0 : message[0]));
                    carry_out(groups_.message(id, llc::kFirstLink, message, world_.now()));
                }
            });
        },
        [this, id](const std::string& why) {
            world_.after(world_.local(), [this, id, why] {
                tell(name(id) + " lost its link: " + why);
                carry_out(groups_.link_down(id, why, world_.now()));
            });
        }};
    live_[id].driver =
        std::make_shared<smcr::LinkDriver>(std::move(link), std::move(hooks), std::chrono::microseconds(0));
    carry_out(
        groups_.link_created(id, own, spare, LinkId{static_cast<std::uint32_t>(id)}, world_.chance(50), world_.now()));
}

void LinkGroups::on(const group::ConnectLink& action) {
    const GroupId id = action.group;
    world_.after(world_.network(), [this, id, peer = action.peer] {
        const group::SmcrGroup* group = groups_.find(id);
        Live* there = live(id);
        if (group == nullptr || there == nullptr || group->state() != group::SmcrGroup::State::kConnecting) {
            return;
        }
        if (world_.strikes(Mishap::kLinkNotConnected)) {
            return carry_out(groups_.link_refused(id, Refusal::kUnreachable, "simulated", world_.now()));
        }
        (void)there->driver->link().connect(peer);
        engine_.add_task(there->driver);
        carry_out(groups_.link_connected(id, world_.now()));
    });
}

void LinkGroups::on(const group::RegisterBuffer& action) {
    Live* there = live(action.group);
    if (there == nullptr) {
        return;
    }
    const GroupId id = action.group;
    const group::BufferId buffer = action.buffer;
    if (world_.strikes(Mishap::kBufferRefused)) {
        return carry_out(groups_.buffer_refused(id, buffer, Refusal::kOutOfMemory, "simulated", world_.now()));
    }
    const std::uint32_t number = port_.next_number++;
    const auto memory = std::make_shared<SimMemory>(
        terms_.rmbe_bytes, terms_.rmbes_per_rmb, VirtualAddress{std::uint64_t{number} << 32}, RKey{number},
        [this, id, buffer](std::size_t element) {
            world_.after(world_.local(), [this, id, buffer, element] {
                carry_out(groups_.element_returned(id, buffer, static_cast<std::uint8_t>(element), world_.now()));
            });
        });
    if (action.kind == group::BufferKind::kRmb) {
        port_.memory.emplace(memory->rkey(), memory);
    }
    there->buffers.emplace(buffer, memory);
    carry_out(groups_.buffer_registered(id, buffer, memory->rkey(), memory->address(), world_.now()));
}

void LinkGroups::on(const group::DropBuffer& action) {
    if (Live* there = live(action.group)) {
        there->buffers.erase(action.buffer);
    }
}

void LinkGroups::on(const group::SendMessage& action) {
    if (Live* there = live(action.group)) {
        there->driver->send_soon(action.bytes);
        engine_.kick(there->driver);
    }
}

void LinkGroups::on(const group::OpenToken& action) {
    if (Live* there = live(action.group)) {
        world_.require(there->driver->open(action.token), node_ + ": two connections with one alert token");
    }
}

void LinkGroups::on(const group::ForgetToken& action) {
    if (Live* there = live(action.group)) {
        there->driver->forget(action.token);
    }
}

void LinkGroups::on(const group::LingerToken& action) {
    if (Live* there = live(action.group)) {
        there->driver->linger(action.seat.token, there->buffers.at(action.seat.rmb)->element(action.seat.rmbe));
    }
}

void LinkGroups::on(const group::EndConnection& action) {
    if (Live* there = live(action.group); there != nullptr) {
        there->driver->peer_left(action.token);
        engine_.kick(there->driver);
    }
}

void LinkGroups::on(const group::EndLink& action) {
    if (Live* there = live(action.group)) {
        there->driver->end(action.why);
        engine_.kick(there->driver);
    }
}

void LinkGroups::on(const group::ForgetGroup& action) {
    live_.erase(action.group);
}

// --- telling --------------------------------------------------------------------------------------------------------

void LinkGroups::on(const group::Joined& action) {
    if (Live* there = live(action.group); there != nullptr && action.seat.rmbe_was_used) {
        std::ranges::fill(there->buffers.at(action.seat.rmb)->bytes_of(action.seat.rmbe), std::uint8_t{0});
    }
    if (const auto it = hooks_.find(action.member); it != hooks_.end()) {
        const auto joined = it->second.joined;
        joined(action);
    }
}

void LinkGroups::on(const group::JoinRefused& action) {
    world_.require(action.refusal != Refusal::kTimeout || world_.struck(Mishap::kLinkSlow) ||
                       world_.struck(Mishap::kLinkCut) || world_.struck(Mishap::kClcSlow) ||
                       world_.struck(Mishap::kClcLost),
                   node_ + ": nothing was slow, and somebody waited in vain for a seat (G4)");
    if (const auto it = hooks_.find(action.member); it != hooks_.end()) {
        const auto refused = it->second.refused;
        hooks_.erase(it);
        refused(action);
    }
}

void LinkGroups::on(const group::LinkReady& action) {
    awaiting_.erase(action.member);
    if (const auto it = hooks_.find(action.member); it != hooks_.end()) {
        const auto ready = it->second.link_ready;
        ready();
    }
}

void LinkGroups::on(const group::LinkFailed& action) {
    awaiting_.erase(action.member);
    if (const auto it = hooks_.find(action.member); it != hooks_.end()) {
        const auto failed = it->second.link_failed;
        failed(action);
    }
}

void LinkGroups::on(const group::GroupUp& action) {
    tell(name(action.group) + " is up");
}

void LinkGroups::on(const group::GroupOver& action) {
    tell(name(action.group) + " is over: " + action.detail);
}

void LinkGroups::tick() {
    for (const auto& [id, there] : live_) {
        groups_.heard(id, llc::kFirstLink, there.driver->counters().messages_received.load(), world_.now());
    }
    carry_out(groups_.tick(world_.now()));
}

}  // namespace smc::sim
