// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Members, what happens to ports and links, and what members are told. link_groups_links.cc has the links,
// link_groups_memory.cc the memory, as in the agent.
#include "link_groups.h"

#include <algorithm>
#include <iterator>

namespace smc::sim {

namespace {

using group::GroupId;
using group::Refusal;

smcr::RemoteRmbe remote_of(std::uint8_t link, const clc::Rmbe& rmbe) {
    const std::uint32_t bytes = bytes_of(rmbe.size);
    return {link, rmbe.rkey, rmbe.rmb_address, std::uint64_t{bytes} * (rmbe.index - 1U), rmbe.token, bytes};
}

std::string text_of(const QpEnd& end) {
    return end.gid.normalised().text() + " " + std::to_string(static_cast<std::uint32_t>(end.qpn));
}

}  // namespace

LinkGroups::LinkGroups(World& world, std::string node, Engine& engine, const SimLink::Network& network,
                       const std::vector<std::unique_ptr<Port>>& ports, const group::SmcrTerms& terms,
                       bool sends_on_any_link)
    : world_(world),
      node_(std::move(node)),
      engine_(engine),
      network_(network),
      ports_(ports),
      terms_(terms),
      sends_on_any_link_(sends_on_any_link),
      groups_(terms),
      deadline_(world, [this] { tick(); }) {}

std::vector<std::shared_ptr<smcr::ElementOwner>> LinkGroups::Live::memory() const {
    std::vector<std::shared_ptr<smcr::ElementOwner>> out;
    for (const auto& [id, buffer] : buffers) {
        out.push_back(buffer);
    }
    return out;
}

LinkGroups::Live* LinkGroups::live(GroupId group) {
    const auto it = live_.find(group);
    return it == live_.end() ? nullptr : &it->second;
}

LinkGroups::LiveLink* LinkGroups::live(GroupId group, std::uint8_t link) {
    Live* there = live(group);
    const auto it = there != nullptr ? there->links.find(link) : std::map<std::uint8_t, LiveLink>::iterator{};
    return there == nullptr || it == there->links.end() ? nullptr : &it->second;
}

void LinkGroups::tell_ports() {
    tell_ports_without(nullptr);
}

void LinkGroups::tell_ports_without(const Port* missing) {
    std::vector<group::LocalPort> ports, down;
    for (const auto& port : ports_) {
        if (port->down) {
            down.push_back({port->device, 1, {}});
        } else if (port.get() != missing) {
            ports.push_back({port->device, 1, port->gid, 2, {}});
            ports.push_back({port->device, 1, port->gid, 1, {}});
        }
    }
    hear();
    carry_out(groups_.set_ports(std::move(ports), std::move(down), world_.now()));
}

void LinkGroups::lose_device(const Port& port) {
    hear();
    carry_out(groups_.device_gone(port.device, world_.now()));
    tell_ports_without(&port);
}

void LinkGroups::change_links() {
    const Port& port = *ports_[world_.below(ports_.size())];
    const auto what = world_.below(10);
    if (what == 0) {
        tell("ends all link groups");
        return end_all();
    }
    if (what < 4) {
        tell("has every port");
        return tell_ports();
    }
    tell("is without " + port.device + (what < 7 ? ", at once" : ""));
    what < 7 ? lose_device(port) : tell_ports_without(&port);
    world_.after(world_.some_time(std::chrono::seconds(1)), [this] { tell_ports(); });
}

void LinkGroups::move_connections() {
    for (const group::SmcrGroup* group : groups_.all()) {
        const auto up = group->links().up();
        if (up.size() < 2) {
            continue;
        }
        const std::uint8_t from = up[world_.below(up.size())];
        if (LiveLink* link = live(group->id(), from)) {
            tell(name(group->id()) + ": connections leave link " + std::to_string(from));
            has_moved_any_ = true;
            live(group->id())->driver->retire(from);
            engine_.kick(link->driver);
            // By then the connections have left the link, and it may be used again.
            world_.after(std::chrono::microseconds(21), [this, id = group->id(), from] {
                const group::SmcrGroup* there = groups_.find(id);
                LiveLink* again = live(id, from);
                if (again != nullptr && there != nullptr && std::ranges::count(there->links().up(), from) != 0) {
                    live(id)->driver->use(from, again->driver);
                }
            });
        }
    }
}

void LinkGroups::speak_nonsense() {
    if (live_.empty()) {
        return;
    }
    const auto& [id, group] = *std::next(live_.begin(), static_cast<long>(world_.below(live_.size())));
    if (group.links.empty()) {
        return;
    }
    const auto& [number, link] = *std::next(group.links.begin(), static_cast<long>(world_.below(group.links.size())));
    std::vector<std::uint8_t> message(world_.chance(80) ? llc::kSmallBytes : world_.between(1, llc::kMaxMessage));
    std::ranges::generate(message, [&] { return static_cast<std::uint8_t>(world_.below(256)); });
    // An existing type, of version 1 or 2, mostly with the right length; or any type that is not CDC's.
    const auto type = static_cast<std::uint8_t>(world_.between(1, 9) | (world_.chance(50) ? 0x20U : 0U));
    message[0] = world_.chance(70) ? type : static_cast<std::uint8_t>(world_.below(cdc::kType));
    if (message.size() > 3 && world_.chance(80)) {
        const bool large = (message[0] & 0x20U) != 0;  // of version 2, whose length has two bytes
        message[1] = static_cast<std::uint8_t>(large ? message.size() >> 8U : message.size());
        message[2] = static_cast<std::uint8_t>(large ? message.size() : 0);
        message[3] = world_.chance(50) ? 0x80 : 0;  // mostly the only flag is the one for a reply
    }
    tell("says nonsense of type " + std::to_string(message[0]) + " on link " + std::to_string(number) + " of " +
         name(id));
    link.driver->send_soon(std::move(message));
    engine_.kick(link.driver);
}

void LinkGroups::die() {
    tell("dies");
    for (const auto& [id, group] : live_) {
        for (const auto& [number, link] : group.links) {
            static_cast<SimLink&>(link.driver->link()).cut();
        }
    }
    end_all();
}

// --- members --------------------------------------------------------------------------------------------------------

void LinkGroups::join(group::MemberId member, bool server, const clc::SmcrPeer& peer, TimePoint deadline,
                      Callbacks callbacks) {
    callbacks_.insert_or_assign(member, std::move(callbacks));
    group::SmcrGroups::Join join{
        member, peer,     {ports_.front()->device, 1, ports_.front()->gid, peer.version, {}},
        0,      deadline, AlertToken{static_cast<std::uint32_t>(world_.between(1, 0xffffffff))}};
    if (world_.chance(30)) {  // the application has chosen its buffers
        join.bytes.rmbe = group::kSmallestElement << world_.below(4);
        join.bytes.send = std::max(group::kSmallestElement << world_.below(4), terms_.rmbe_bytes);
    }
    carry_out(server ? groups_.join_as_server(std::move(join), world_.now())
                     : groups_.join_as_client(std::move(join), world_.now()));
}

void LinkGroups::await_link(group::MemberId member, const clc::SmcrPeer& peer) {
    const group::SmcrGroup& group = *groups_.group_of(member);
    world_.require(peer.first_contact || group.state() == group::SmcrGroup::State::kOver ||
                       group.links().up().empty() || !group.links().with_peer(peer.link) ||
                       group.peer_rmb(*group.links().with_peer(peer.link), peer.rmbe.rkey) != nullptr,
                   node_ + ": the peer names an RMB that it never had confirmed (G2)");
    // A server of net/smc has the key of the Confirm for the link that its Accept named.
    const auto named = group.links().with_peer(peer.link);
    const std::uint8_t accepted = groups_.assignment_of(member)->link;
    world_.require(!group.key().server || peer.first_contact || !named || *named == accepted ||
                       std::ranges::count(group.links().up(), accepted) == 0,
                   node_ + ": the Confirm names another link than the Accept");
    awaiting_.emplace(member, group.id());
    carry_out(groups_.await_link(member, peer, world_.now()));
}

void LinkGroups::await_peer(group::MemberId member) {
    const group::SmcrGroup* group = groups_.group_of(member);
    const group::Assignment* assignment = groups_.assignment_of(member);
    Live* there = group != nullptr ? live(group->id()) : nullptr;
    if (there == nullptr || assignment == nullptr) {
        return;
    }
    there->driver->await_message(assignment->token, [this, member](bool aborts) {
        world_.after(world_.local(), [this, member, aborts] {
            if (const auto it = callbacks_.find(member); it != callbacks_.end()) {
                const auto announced = it->second.first_message;
                announced(aborts);
            }
        });
    });
}

// The peer's RMB has a key on each link. RFC 7609 does not say that both directions of a connection use the same link
// (section 2.3).
smcr::RemoteRmbe LinkGroups::on_any_link(const Live& group, smcr::RemoteRmbe rmbe) {
    if (!sends_on_any_link_) {
        return rmbe;
    }
    for (const auto& [number, link] : group.links) {
        const auto token = group.driver->rtoken(rmbe.link, rmbe.rkey, number);
        if (number != rmbe.link && token && world_.chance(70)) {
            rmbe.link = number;
            rmbe.rkey = token->rkey;
            rmbe.address = token->address;
        }
    }
    return rmbe;
}

std::unique_ptr<Transport> LinkGroups::run(group::MemberId member, const clc::Rmbe& peer) {
    const group::SmcrGroup* group = groups_.group_of(member);
    const group::Assignment* assignment = groups_.assignment_of(member);
    Live* there = group != nullptr ? live(group->id()) : nullptr;
    if (there == nullptr || assignment == nullptr) {
        return nullptr;
    }
    smcr::RmbeTransport::Parts parts{there->driver,
                                     assignment->token,
                                     there->buffers.at(assignment->rmb)->element(assignment->rmbe),
                                     there->buffers.at(assignment->send)->element(assignment->send_element),
                                     on_any_link(*there, remote_of(groups_.peer_link_of(member), peer)),
                                     group->eye_catchers()};
    groups_.running(member);
    return std::make_unique<smcr::RmbeTransport>(std::move(parts));
}

void LinkGroups::leave(group::MemberId member, const group::SmcrGroups::Leaving& how) {
    callbacks_.erase(member);
    awaiting_.erase(member);
    carry_out(groups_.leave(member, how, world_.now()));
}

void LinkGroups::end_all() {
    carry_out(groups_.end_all(world_.now()));
}

std::map<std::string, std::string> LinkGroups::active() const {
    std::map<std::string, std::string> out;
    for (const group::SmcrGroup* group : groups_.all()) {
        world_.require(group->active(), node_ + ": " + name(group->id()) + " is quiet, but neither up nor over");
        world_.require(group->connections() == 0, node_ + ": " + name(group->id()) + " has members, and all have left");
        for (const std::uint8_t number : group->links().up()) {
            const group::GroupLink& link = *group->links().find(number);
            out.emplace(text_of(link.own), text_of(link.peer));
        }
    }
    return out;
}

void LinkGroups::check_all_is_gone() const {
    world_.require(groups_.all().empty(), node_ + ": a link group outlives end_all()");
    world_.require(live_.empty(), node_ + ": a link group that is over is never forgotten");
    world_.require(groups_.registered() == 0,
                   node_ + ": " + std::to_string(groups_.registered()) + " bytes stay registered");
    world_.require(engine_.tasks() == 0, node_ + ": the data path still drives something");
    for (const auto& port : ports_) {
        world_.require(port->links.empty(), node_ + ": a queue pair is left");
        world_.require(std::ranges::all_of(port->memory, [](const auto& entry) { return entry.second.expired(); }),
                       node_ + ": registered memory is left");
    }
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

// G4: a member that waits for the link of a group that is over has been told. C3: no connection ends while there is a
// link for it.
void LinkGroups::check() const {
    for (const auto& [id, there] : live_) {
        world_.require(there.driver->not_moved() == 0,
                       node_ + ": a connection ends with its link, and there is another (C3)");
    }
    for (const auto& [member, id] : awaiting_) {
        const group::SmcrGroup* group = groups_.find(id);
        world_.require(group != nullptr && group->state() != group::SmcrGroup::State::kOver,
                       node_ + ": a connection waits for the link of a group that is over (G4)");
    }
}

void LinkGroups::on(const group::ForgetGroup& action) {
    live_.erase(action.group);
}

// --- telling --------------------------------------------------------------------------------------------------------

void LinkGroups::on(const group::Joined& action) {
    if (Live* there = live(action.group); there != nullptr && action.assignment.rmbe_was_used) {
        std::ranges::fill(there->buffers.at(action.assignment.rmb)->bytes_of(action.assignment.rmbe), std::uint8_t{0});
    }
    if (const auto it = callbacks_.find(action.member); it != callbacks_.end()) {
        const auto joined = it->second.joined;
        joined(action);
    }
}

void LinkGroups::on(const group::JoinRefused& action) {
    world_.require(
        action.refusal != Refusal::kTimeout || world_.struck(Mishap::kLinkSlow) || world_.struck(Mishap::kLinkCut) ||
            world_.struck(Mishap::kClcSlow) || world_.struck(Mishap::kClcLost) || world_.struck(Mishap::kPortDown) ||
            world_.struck(Mishap::kAckedAndLost) || world_.struck(Mishap::kNonsense) || world_.struck(Mishap::kDies),
        node_ + ": nothing was slow, and somebody waited in vain for an assignment (G4)");
    if (const auto it = callbacks_.find(action.member); it != callbacks_.end()) {
        const auto refused = it->second.refused;
        callbacks_.erase(it);
        refused(action);
    }
}

void LinkGroups::on(const group::LinkReady& action) {
    awaiting_.erase(action.member);
    if (const auto it = callbacks_.find(action.member); it != callbacks_.end()) {
        const auto ready = it->second.link_ready;
        ready();
    }
}

void LinkGroups::on(const group::LinkFailed& action) {
    awaiting_.erase(action.member);
    if (const auto it = callbacks_.find(action.member); it != callbacks_.end()) {
        const auto failed = it->second.link_failed;
        failed(action);
    }
}

void LinkGroups::on(const group::GroupUp& action) {
    tell(name(action.group) + " is up");
}

void LinkGroups::on(const group::LinkChanged& action) {
    tell(name(action.group) + (action.up ? " has link " : " is without link ") + std::to_string(action.link) + " " +
         action.why);
}

void LinkGroups::on(const group::GroupOver& action) {
    tell(name(action.group) + " is over: " + action.detail);
}

void LinkGroups::hear() {
    for (const auto& [id, there] : live_) {
        hear(id);
    }
}

void LinkGroups::hear(GroupId id) {
    if (const Live* there = live(id)) {
        for (const auto& [number, link] : there->links) {
            groups_.heard(id, number, link.driver->counters().messages_received.load(), world_.now());
        }
    }
}

void LinkGroups::tick() {
    hear();
    carry_out(groups_.tick(world_.now()));
}

}  // namespace smc::sim
