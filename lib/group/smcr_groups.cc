// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/group/smcr_groups.h"

#include <algorithm>

namespace smc::group {

// --- members --------------------------------------------------------------------------------------------------------

Actions SmcrGroups::join_as_server(Join join, TimePoint now) {
    const MemberId id = join.member;
    members_.insert_or_assign(id, Member{.join = std::move(join), .server = true});
    waiting_.insert(id);
    return after(nullptr, {}, now);
}

Actions SmcrGroups::join_as_client(Join join, TimePoint now) {
    Actions actions;
    const Out out{actions, now};
    const MemberId id = join.member;
    Member& member =
        members_.insert_or_assign(id, Member{.join = std::move(join), .state = Member::State::kSeating}).first->second;
    const clc::SmcrPeer& peer = member.join.peer;
    member.first_contact = peer.first_contact;
    waiting_.insert(id);
    if (member.first_contact) {
        if (const auto refusal = make_group(member, out)) {
            refuse(member, *refusal, "", out);
        }
        return after(nullptr, std::move(actions), now);
    }
    const auto it = std::ranges::find_if(groups_, [&](const auto& entry) {
        const SmcrGroup& group = *entry.second;
        return !group.key().server && group.key().version == peer.version && group.peer().id == peer.id &&
               group.key().eid == peer.eid && group.active() && group.peer().link.is(peer.link);
    });
    if (it == groups_.end()) {
        refuse(member, Refusal::kOutOfSync, "the server named a link that is not known here", out);
    } else {
        member.group = it->second.get();
    }
    return after(nullptr, std::move(actions), now);
}

Actions SmcrGroups::await_link(MemberId id, const clc::SmcrPeer& peer, TimePoint now) {
    Actions actions;
    const Out out{actions, now};
    const auto it = members_.find(id);
    if (it == members_.end() || it->second.state != Member::State::kSeated) {
        return actions;
    }
    Member& member = it->second;
    SmcrGroup& group = *member.group;
    member.state = Member::State::kAwaitingLink;
    member.join.deadline = kNever;  // LLC has its own
    waiting_.insert(id);
    if (member.server && !member.first_contact && !group.peer().link.is(peer.link)) {
        link_failed(member, Reason::kProtocolError, "Confirm names another link than the Accept", false, out);
    } else if (member.server && !member.first_contact && !group.know(peer.rmbe.rkey)) {
        link_failed(member, Reason::kRtokenFailed, "the client has too many RMBs", false, out);
    } else if (member.server && member.first_contact && connecting() >= terms_.max_connecting) {
        link_failed(member, Reason::kLinkNotReady, "too many queue pairs wait for their peer's address", true, out);
    } else {
        member.peer_rmbe = peer.rmbe;
        if (member.server && member.first_contact) {
            group.connect(peer, out);
        }
    }
    return after(&group, std::move(actions), now);
}

void SmcrGroups::running(MemberId id) {
    if (const auto it = members_.find(id); it != members_.end()) {
        it->second.state = Member::State::kRunning;
    }
}

Actions SmcrGroups::leave(MemberId id, const Leaving& how, TimePoint now) {
    Actions actions;
    const Out out{actions, now};
    const auto it = members_.find(id);
    if (it == members_.end()) {
        return actions;
    }
    Member& member = it->second;
    SmcrGroup* group = member.group;
    const bool ran = member.state == Member::State::kRunning;
    if (group != nullptr && !ran) {
        const bool never_up = member.first_contact && !group->active();
        if (how.out_of_sync && !never_up) {
            group->peer_out_of_sync();
        } else if (never_up) {
            group->end(llc::DeleteLinkReason::kProtocolViolation, out);
        }
    }
    if (group != nullptr && member.seat) {
        const bool told = !how.declined && member.state != Member::State::kConnecting;
        group->leave(id, *member.seat, {told, member.peer_rmbe, ran}, out);
    }
    waiting_.erase(id);
    members_.erase(it);
    return after(group, std::move(actions), now);
}

// True: the member got further, and may get further still.
bool SmcrGroups::advance(Member& member, Out out) {
    switch (member.state) {
        case Member::State::kChoosing:
            return choose(member, out);
        case Member::State::kSeating:
            return seat(member, out);
        case Member::State::kConnecting:
            return connect(member, out);
        case Member::State::kAwaitingLink:
            return await(member, out);
        case Member::State::kSeated:
        case Member::State::kReady:
        case Member::State::kRunning:
            break;
    }
    return false;
}

bool SmcrGroups::choose(Member& member, Out out) {
    const clc::SmcrPeer& peer = member.join.peer;
    const SmcrKey key{true, peer.version, peer.link.gid, member.join.port.gid, peer.eid};
    if (is_forming(key)) {
        return false;
    }
    member.group = find_for(key, peer.id);
    member.first_contact = member.group == nullptr;
    if (member.first_contact) {
        if (const auto refusal = make_group(member, out)) {
            refuse(member, *refusal, "", out);
            return false;
        }
    }
    member.state = Member::State::kSeating;
    return true;
}

bool SmcrGroups::seat(Member& member, Out out) {
    SmcrGroup& group = *member.group;
    const MemberId id = member.join.member;
    if (group.state() == SmcrGroup::State::kOver) {
        refuse(member, group.take_refusal().value_or(Refusal::kGroupOver), group.why_over().detail, out);
        return false;
    }
    if (member.server && !member.first_contact && !group.has_room()) {
        member.state = Member::State::kChoosing;  // it has become full meanwhile
        return true;
    }
    if (!group.can_be_told()) {
        return false;
    }
    member.seat = group.take(id, member.join.random, out);
    if (!member.seat) {
        if (const auto refusal = group.take_refusal()) {
            refuse(member, *refusal, "", out);
        }
        return false;
    }
    if (member.server) {
        joined(member, out);
        return false;
    }
    member.peer_rmbe = member.join.peer.rmbe;
    if (!member.first_contact) {
        if (group.know(member.join.peer.rmbe.rkey)) {
            joined(member, out);
        } else {
            refuse(member, Refusal::kTooManyPeerRmbs, "the server has too many RMBs", out);
        }
        return false;
    }
    if (connecting() >= terms_.max_connecting) {
        refuse(member, Refusal::kBusy, "too many queue pairs wait for their peer's address", out);
        return false;
    }
    member.state = Member::State::kConnecting;
    group.connect(member.join.peer, out);
    return false;
}

bool SmcrGroups::connect(Member& member, Out out) {
    const SmcrGroup::State state = member.group->state();
    if (state == SmcrGroup::State::kOver) {
        refuse(member, member.group->take_refusal().value_or(Refusal::kGroupOver), member.group->why_over().detail,
               out);
    } else if (state == SmcrGroup::State::kForming || state == SmcrGroup::State::kActive) {
        joined(member, out);
    }
    return false;
}

bool SmcrGroups::await(Member& member, Out out) {
    const SmcrGroup& group = *member.group;
    if (group.active()) {
        member.state = Member::State::kReady;
        waiting_.erase(member.join.member);
        out.actions.push_back(LinkReady{member.join.member});
    } else if (group.state() == SmcrGroup::State::kOver || !member.first_contact) {
        const llc::Over& over = group.why_over();
        const bool before_confirm_link =
            member.server && member.first_contact && (!group.llc_began() || over.reason == Reason::kTimeoutConfirmLink);
        const Reason reason = over.reason != Reason::kNone ? over.reason
                              : before_confirm_link        ? Reason::kLinkNotReady
                                                           : Reason::kLinkDown;
        link_failed(member, reason, over.detail, before_confirm_link, out);
    }
    return false;
}

void SmcrGroups::joined(Member& member, Out out) {
    const SmcrGroup& group = *member.group;
    clc::LocalRmbe local{group.own(), group.rmbe(*member.seat), member.first_contact, clc::LinkType::kIndirect};
    if (member.first_contact && member.server && group.direct()) {
        local.link_type = clc::LinkType::kDirect;
    }
    member.state = Member::State::kSeated;
    member.join.deadline = kNever;
    waiting_.erase(member.join.member);
    out.actions.push_back(Joined{member.join.member, group.id(), *member.seat, local});
}

// A first contact whose only member it was ends with it.
void SmcrGroups::abandon(const Member& member, llc::DeleteLinkReason reason, Out out) {
    if (member.group != nullptr && member.first_contact) {
        member.group->end(reason, out);
    }
}

void SmcrGroups::refuse(Member& member, Refusal refusal, std::string detail, Out out) {
    const MemberId id = member.join.member;
    abandon(member, llc::DeleteLinkReason::kNone, out);
    if (member.seat) {
        member.group->leave(id, *member.seat, {.told = false}, out);
    }
    out.actions.push_back(JoinRefused{id, refusal, std::move(detail)});
    waiting_.erase(id);
    members_.erase(id);
}

void SmcrGroups::link_failed(Member& member, Reason reason, std::string detail, bool before_confirm_link, Out out) {
    member.state = Member::State::kReady;  // there is nothing more to wait for
    waiting_.erase(member.join.member);
    out.actions.push_back(LinkFailed{member.join.member, reason, std::move(detail), before_confirm_link});
}

// --- results --------------------------------------------------------------------------------------------------------

Actions SmcrGroups::link_created(GroupId id, const QpEnd& own, const std::optional<QpEnd>& spare, LinkId own_id,
                                 bool direct, TimePoint now) {
    Actions actions;
    SmcrGroup* group = lookup(id);
    if (group != nullptr) {
        group->link_created(own, spare, own_id, direct, {actions, now});
    }
    return after(group, std::move(actions), now);
}

Actions SmcrGroups::link_connected(GroupId id, TimePoint now) {
    Actions actions;
    SmcrGroup* group = lookup(id);
    if (group != nullptr) {
        group->link_connected({actions, now});
    }
    return after(group, std::move(actions), now);
}

Actions SmcrGroups::link_refused(GroupId id, Refusal refusal, const std::string& detail, TimePoint now) {
    Actions actions;
    SmcrGroup* group = lookup(id);
    if (group != nullptr) {
        group->link_refused(refusal, detail, {actions, now});
    }
    return after(group, std::move(actions), now);
}

Actions SmcrGroups::buffer_registered(GroupId id, BufferId buffer, RKey rkey, VirtualAddress address, TimePoint now) {
    Actions actions;
    SmcrGroup* group = lookup(id);
    if (group != nullptr) {
        group->buffer_registered(buffer, rkey, address, {actions, now});
    }
    return after(group, std::move(actions), now);
}

Actions SmcrGroups::buffer_refused(GroupId id, BufferId buffer, Refusal refusal, const std::string& detail,
                                   TimePoint now) {
    Actions actions;
    SmcrGroup* group = lookup(id);
    if (group != nullptr) {
        group->buffer_refused(buffer, refusal, detail, {actions, now});
    }
    return after(group, std::move(actions), now);
}

Actions SmcrGroups::element_returned(GroupId id, BufferId buffer, std::uint8_t element, TimePoint now) {
    Actions actions;
    SmcrGroup* group = lookup(id);
    if (group != nullptr) {
        group->element_returned(buffer, element, {actions, now});
    }
    return after(group, std::move(actions), now);
}

Actions SmcrGroups::message(GroupId id, std::uint8_t link, wire::Bytes bytes, TimePoint now) {
    Actions actions;
    SmcrGroup* group = lookup(id);
    if (group != nullptr) {
        group->message(link, bytes, {actions, now});
    }
    return after(group, std::move(actions), now);
}

void SmcrGroups::heard(GroupId id, std::uint8_t link, std::uint64_t messages, TimePoint now) {
    if (SmcrGroup* group = lookup(id); group != nullptr) {
        group->heard(link, messages, now);
    }
}

Actions SmcrGroups::link_down(GroupId id, const std::string& why, TimePoint now) {
    Actions actions;
    SmcrGroup* group = lookup(id);
    if (group != nullptr) {
        group->down(why, {actions, now});
    }
    return after(group, std::move(actions), now);
}

Actions SmcrGroups::device_gone(const std::string& device, TimePoint now) {
    Actions actions;
    for (auto& [id, group] : groups_) {
        if (group->port().device == device) {
            group->down("device " + device + " is gone", {actions, now});
        }
    }
    return after(nullptr, std::move(actions), now);
}

Actions SmcrGroups::end_all(TimePoint now) {
    Actions actions;
    for (auto& [id, group] : groups_) {
        group->end(llc::DeleteLinkReason::kOperator, {actions, now});
        group->down("the agent stops", {actions, now});  // without waiting for the answer
    }
    return after(nullptr, std::move(actions), now);
}

Actions SmcrGroups::tick(TimePoint now) {
    Actions actions;
    expire({actions, now});
    for (auto& [id, group] : groups_) {
        group->tick({actions, now});
    }
    return after(nullptr, std::move(actions), now);
}

TimePoint SmcrGroups::next_deadline() const {
    TimePoint next = kNever;
    for (const auto& [id, group] : groups_) {
        next = std::min(next, group->next_deadline());
    }
    for (const MemberId id : waiting_) {
        next = std::min(next, members_.at(id).join.deadline);
    }
    return next;
}

// --- what follows from anything that happened -----------------------------------------------------------------------

Actions SmcrGroups::after(const SmcrGroup* changed, Actions actions, TimePoint now) {
    const Out out{actions, now};
    // A growth that was refused is refused to all who wait for it: asking again would get the same answer.
    if (SmcrGroup* group = changed != nullptr ? lookup(changed->id()) : nullptr;
        group != nullptr && group->state() != SmcrGroup::State::kOver) {
        if (const auto refusal = group->take_refusal()) {
            const auto waiting = waiting_;
            for (const MemberId id : waiting) {
                Member& member = members_.at(id);
                if (member.group == group && member.state == Member::State::kSeating) {
                    refuse(member, *refusal, "", out);
                }
            }
        }
    }
    settle(out);
    forget_groups(out);
    return actions;
}

void SmcrGroups::settle(Out out) {
    for (bool moved = true; moved;) {
        moved = false;
        const auto waiting = waiting_;  // members leave it as they get on
        for (const MemberId id : waiting) {
            while (waiting_.contains(id) && advance(members_.at(id), out)) {
                moved = true;
            }
        }
    }
}

void SmcrGroups::expire(Out out) {
    const auto waiting = waiting_;
    for (const MemberId id : waiting) {
        Member& member = members_.at(id);
        if (out.now < member.join.deadline) {
            continue;
        }
        const bool choosing = member.state == Member::State::kChoosing;
        refuse(member, choosing ? Refusal::kBusy : Refusal::kTimeout,
               choosing ? "waiting for the first contact of another connection" : "waiting for an RMBE", out);
    }
}

void SmcrGroups::forget_groups(Out out) {
    std::erase_if(groups_, [&](const auto& entry) {
        const SmcrGroup* group = entry.second.get();
        const bool awaited =
            std::ranges::any_of(waiting_, [&](MemberId member) { return members_.at(member).group == group; });
        if (awaited || !group->can_be_forgotten()) {
            return false;
        }
        out.actions.push_back(ForgetGroup{entry.first});
        return true;
    });
}

std::optional<Refusal> SmcrGroups::make_group(Member& member, Out out) {
    const clc::SmcrPeer& peer = member.join.peer;
    const SmcrKey key{member.server, peer.version, peer.link.gid, member.join.port.gid, peer.eid};
    const GroupId id{next_id_++};
    auto group = std::make_unique<SmcrGroup>(id, key, member.join.port, peer.max_connections, terms_, registered_);
    if (const auto refusal = group->create(out)) {
        return refusal;
    }
    member.group = group.get();
    groups_.emplace(id, std::move(group));
    return std::nullopt;
}

// --- what there is to know ------------------------------------------------------------------------------------------

SmcrGroup* SmcrGroups::lookup(GroupId id) {
    const auto it = groups_.find(id);
    return it == groups_.end() ? nullptr : it->second.get();
}

const SmcrGroup* SmcrGroups::find(GroupId id) const {
    const auto it = groups_.find(id);
    return it == groups_.end() ? nullptr : it->second.get();
}

SmcrGroup* SmcrGroups::find_for(const SmcrKey& key, const PeerId& peer) const {
    const auto it = std::ranges::find_if(groups_, [&](const auto& entry) {
        const SmcrGroup& group = *entry.second;
        return group.key() == key && group.active() && group.has_room() &&
               (peer == PeerId{} || group.peer().id == peer);
    });
    return it == groups_.end() ? nullptr : it->second.get();
}

bool SmcrGroups::is_forming(const SmcrKey& key) const {
    return std::ranges::any_of(
        groups_, [&](const auto& entry) { return entry.second->key() == key && !entry.second->settled(); });
}

unsigned SmcrGroups::connecting() const {
    return static_cast<unsigned>(std::ranges::count_if(
        groups_, [](const auto& entry) { return entry.second->state() == SmcrGroup::State::kConnecting; }));
}

std::vector<const SmcrGroup*> SmcrGroups::all() const {
    std::vector<const SmcrGroup*> out;
    for (const auto& [id, group] : groups_) {
        if (group->state() != SmcrGroup::State::kOver) {
            out.push_back(group.get());
        }
    }
    return out;
}

const SmcrGroup* SmcrGroups::group_of(MemberId member) const {
    const auto it = members_.find(member);
    return it == members_.end() || !it->second.seat ? nullptr : it->second.group;
}

const Seat* SmcrGroups::seat_of(MemberId member) const {
    const auto it = members_.find(member);
    return it == members_.end() || !it->second.seat ? nullptr : &*it->second.seat;
}

}  // namespace smc::group
