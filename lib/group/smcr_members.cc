// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The members of the link groups: their requests, and their steps from state to state (the table is in smcr_groups.h).
#include <algorithm>

#include "smc/group/smcr_groups.h"

namespace smc::group {

namespace {

constexpr auto kManyConnect = "too many first contacts wait for the neighbour entry of their peer";

}  // namespace

void SmcrGroups::choose_bytes(Join& join) const {
    for (std::uint32_t* bytes : {&join.bytes.rmbe, &join.bytes.send}) {
        *bytes = *bytes != 0 ? *bytes : terms_.rmbe_bytes;
    }
}

// --- a member's requests --------------------------------------------------------------------------------------------

Actions SmcrGroups::join_as_server(Join join, TimePoint now) {
    const MemberId id = join.member;
    choose_bytes(join);
    members_.insert_or_assign(id, Member{.join = std::move(join), .server = true});
    waiting_.insert(id);
    return follow_up(nullptr, {}, now);
}

Actions SmcrGroups::join_as_client(Join join, TimePoint now) {
    Actions actions;
    const Out out{actions, now};
    const MemberId id = join.member;
    choose_bytes(join);
    Member& member = members_.insert_or_assign(id, Member{.join = std::move(join)}).first->second;
    waiting_.insert(id);
    if (member.join.peer.first_contact) {
        member.first_contact = true;
        member.state = Member::State::kAwaitingRmbe;
        if (const auto refusal = make_group(member, out)) {
            refuse(member, *refusal, "", out);
        }
    }
    return follow_up(nullptr, std::move(actions), now);
}

Actions SmcrGroups::await_link(MemberId id, const clc::SmcrPeer& peer, TimePoint now) {
    Actions actions;
    const Out out{actions, now};
    const auto it = members_.find(id);
    if (it == members_.end() || it->second.state != Member::State::kJoined) {
        return actions;
    }
    Member& member = it->second;
    SmcrGroup& group = *member.group;
    member.state = Member::State::kAwaitingLink;
    member.join.deadline = kNever;  // from here on the deadlines of LLC count
    waiting_.insert(id);
    // The Confirm may name any link of the group (section 3.5.2.3). It may also name a link that has gone while the
    // Confirm was on its way, if its RMB is known on that link: the connection then begins on another link.
    auto named = group.links().with_peer(peer.link);
    if (const auto once = group.links().once_with_peer(peer.link);
        !named && once && group.peer_rmb(*once, peer.rmbe.rkey) != nullptr) {
        named = once;
    }
    if (member.server && !member.first_contact && named) {
        member.peer_link = *named;
    }
    if (member.server && !member.first_contact && !named && group.active()) {
        link_failed(member, Reason::kProtocolError, "Confirm names a link that is not known here", false, out);
    } else if (member.server && !member.first_contact && named && !group.note_rmb(*named, peer.rmbe, out)) {
        link_failed(member, Reason::kRtokenFailed, "the client has too many RMBs", false, out);
    } else if (member.server && member.first_contact && !connect(group, peer, out)) {
        link_failed(member, Reason::kLinkNotReady, kManyConnect, true, out);
    } else {
        take_over(member, peer.rmbe, out);
        member.peer_rmbe = peer.rmbe;
    }
    return follow_up(&group, std::move(actions), now);
}

void SmcrGroups::running(MemberId id) {
    if (const auto it = members_.find(id); it != members_.end()) {
        it->second.state = Member::State::kRunning;
        it->second.group->running(id);
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
            group->out_of_sync(out);
        } else if (never_up) {
            group->end(llc::DeleteLinkReason::kProtocolViolation, out);
        }
    }
    if (group != nullptr && member.assignment) {  // G1: it keeps its assignment until now
        const bool counts = !how.declined && member.state != Member::State::kConnecting;
        // A client tells the peer of its RMBE by its Confirm, and is kJoined until that is sent.
        const bool told = counts && (member.server || member.state != Member::State::kJoined);
        group->leave(id, *member.assignment, {told, counts ? member.peer_rmbe : std::nullopt, ran}, out);
    }
    waiting_.erase(id);
    members_.erase(it);
    return follow_up(group, std::move(actions), now);
}

// --- a member's steps -----------------------------------------------------------------------------------------------

// True: the member's state has changed, and may change again at once.
bool SmcrGroups::advance(Member& member, Out out) {
    switch (member.state) {
        case Member::State::kChoosing:
            return choose(member, out);
        case Member::State::kAwaitingRmbe:
            return assign(member, out);
        case Member::State::kConnecting:
            return connect(member, out);
        case Member::State::kAwaitingLink:
            return await(member, out);
        case Member::State::kJoined:
        case Member::State::kReady:
        case Member::State::kRunning:
            break;
    }
    return false;
}

bool SmcrGroups::choose(Member& member, Out out) {
    if (!member.server) {
        return find_named(member, out);
    }
    const clc::SmcrPeer& peer = member.join.peer;
    const SmcrKey key{true, peer.version, peer.link.gid, peer.eid, member.join.port.pnet_id, member.join.vlan};
    member.group = find_for(key, peer.id);
    const auto until = member.group == nullptr ? forming_until(key, peer.id, out.now) : std::nullopt;
    member.chooses_at = until.value_or(kNever);
    if (until) {
        return false;
    }
    member.first_contact = member.group == nullptr;
    if (member.first_contact) {
        if (const auto refusal = make_group(member, out)) {
            refuse(member, *refusal, "", out);
            return false;
        }
    }
    member.state = Member::State::kAwaitingRmbe;
    return true;
}

// Finds the link that the server has named. The EID is not compared: the server decides who shares a group, and a Linux
// server uses one group for all EIDs.
bool SmcrGroups::find_named(Member& member, Out out) {
    const clc::SmcrPeer& peer = member.join.peer;
    bool known = false;  // there is a group with this server
    member.chooses_at = kNever;
    std::optional<TimePoint> forming;
    for (const auto& [id, group] : groups_) {
        if (group->key().server || group->peer().id != peer.id) {
            continue;
        }
        const auto link = group->links().with_peer(peer.link);
        if (link && group->active() && group->key().version == peer.version &&
            group->key().pnet_id == member.join.port.pnet_id && group->key().vlan == member.join.vlan) {
            member.group = group.get();
            member.peer_link = *link;
            member.state = Member::State::kAwaitingRmbe;
            return true;
        }
        known |= group->active() || !group->settled();
        if (const TimePoint until = group->began() + terms_.first_contact; !group->settled() && out.now < until) {
            forming = std::max(forming.value_or(until), until);
        }
    }
    if (forming) {
        // A first contact ends at the server before it ends here, so the link may be one of it.
        member.chooses_at = *forming;
        return false;
    }
    // kBusy if there is a group with this server. Its link may just have gone, or a Linux server, which does not
    // compare versions, has named a link of another version: neither is a reason to end the group.
    refuse(member, known ? Refusal::kBusy : Refusal::kOutOfSync, "the server named a link that is not known here", out);
    return false;
}

bool SmcrGroups::assign(Member& member, Out out) {
    SmcrGroup& group = *member.group;
    const MemberId id = member.join.member;
    // G3.
    if (group.state() == SmcrGroup::State::kOver) {
        refuse(member, group.take_refusal().value_or(Refusal::kGroupOver), group.why_over().detail, out);
        return false;
    }
    if (member.server && !member.first_contact && !group.has_room()) {
        member.state = Member::State::kChoosing;  // the group has become full meanwhile
        return true;
    }
    if (!group.can_be_told()) {
        return false;
    }
    // A Linux server assumes that the RKey in the Confirm belongs to the link that its Accept named.
    const bool needs_named_link = !member.server && !member.first_contact;
    if (needs_named_link && !group.is_up(member.peer_link)) {
        refuse(member, Refusal::kBusy, "the link that the server named has gone", out);
        return false;
    }
    member.assignment =
        group.take(id, member.join.random, needs_named_link ? std::optional(member.peer_link) : std::nullopt,
                   member.join.bytes, out);
    if (!member.assignment) {
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
        if (group.note_rmb(member.peer_link, member.join.peer.rmbe, out)) {
            take_over(member, member.join.peer.rmbe, out);
            joined(member, out);
        } else {
            refuse(member, Refusal::kTooManyPeerRmbs, "the server has too many RMBs", out);
        }
        return false;
    }
    if (connect(group, member.join.peer, out)) {
        member.state = Member::State::kConnecting;
    } else {
        refuse(member, Refusal::kBusy, kManyConnect, out);
    }
    return false;
}

// A group stays in connecting_ until its ConnectLink is answered, even if the group has gone: a peer that leaves at
// once must not get more attempts than others.
bool SmcrGroups::connect(SmcrGroup& group, const clc::SmcrPeer& peer, Out out) {
    if (connecting_.size() >= terms_.max_connecting) {
        return false;
    }
    group.connect(peer, out);
    if (group.state() == SmcrGroup::State::kConnecting) {
        connecting_.insert(group.id());
    }
    return true;
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
    } else if (group.state() == SmcrGroup::State::kOver || !member.first_contact) {  // G4
        const llc::Over& over = group.why_over();
        const bool may_decline = member.first_contact && (over.may_decline || (member.server && !group.llc_began()));
        // A Decline tells the peer this reason, so it is one that Linux knows.
        const Reason reason = over.reason == Reason::kTimeoutConfirmLink ? over.reason
                              : may_decline                              ? Reason::kLinkNotReady
                              : over.reason == Reason::kNone             ? Reason::kLinkDown
                                                                         : over.reason;
        link_failed(member, reason, over.detail, may_decline, out);
    }
    return false;
}

std::optional<Refusal> SmcrGroups::make_group(Member& member, Out out) {
    const clc::SmcrPeer& peer = member.join.peer;
    const SmcrKey key{member.server, peer.version, peer.link.gid, peer.eid, member.join.port.pnet_id, member.join.vlan};
    const GroupId id{next_id_++};
    auto group = std::make_unique<SmcrGroup>(id, key, member.join.port, peer, terms_, ports_, down_, registered_);
    if (const auto refusal = group->create(member.join.bytes, out)) {
        return refusal;
    }
    member.group = group.get();
    groups_.emplace(id, std::move(group));
    return std::nullopt;
}

// G5: ends other members that write into this RMBE of the peer. The peer has given it to another connection, so it is
// done with the connections of those members, although their last messages have not come.
void SmcrGroups::take_over(const Member& member, const clc::Rmbe& rmbe, Out out) {
    const auto set_of = [&](std::uint8_t link, RKey rkey) { return member.group->peer_rmb(link, rkey); };
    for (auto& [id, other] : members_) {
        const bool same = &other != &member && other.group == member.group && other.assignment && other.peer_rmbe &&
                          other.peer_rmbe->index == rmbe.index &&
                          (other.peer_link == member.peer_link
                               ? other.peer_rmbe->rkey == rmbe.rkey
                               : set_of(other.peer_link, other.peer_rmbe->rkey) == set_of(member.peer_link, rmbe.rkey));
        if (same) {
            other.peer_rmbe.reset();
            out.actions.push_back(EndConnection{other.group->id(), other.assignment->token});
        }
    }
}

// The peer has deleted this RMB: ends the members that write into it, whose connections the peer does not have any
// more.
void SmcrGroups::end_those_in(SmcrGroup& group, const llc::RTokenSet& rmb, Out out) {
    for (auto& [id, member] : members_) {
        const auto token = rmb.find(member.peer_link);
        if (member.group == &group && member.assignment && member.peer_rmbe && token != rmb.end() &&
            token->second.rkey == member.peer_rmbe->rkey) {
            member.peer_rmbe.reset();
            out.actions.push_back(EndConnection{group.id(), member.assignment->token});
        }
    }
}

// --- notifications to a member --------------------------------------------------------------------------------------

// G4: a member that was told Joined, or JoinRefused by refuse(), does not wait any more.
void SmcrGroups::joined(Member& member, Out out) {
    const SmcrGroup& group = *member.group;
    const GroupLink& link = *group.links().find(member.assignment->link);
    clc::LocalRmbe local{link.own, group.rmbe(*member.assignment), member.first_contact, clc::LinkType::kIndirect};
    if (member.first_contact && member.server && link.direct) {
        local.link_type = clc::LinkType::kDirect;
    }
    member.state = Member::State::kJoined;
    member.join.deadline = kNever;
    waiting_.erase(member.join.member);
    out.actions.push_back(Joined{member.join.member, group.id(), *member.assignment, local});
}

// The group of a first contact has only this member, so the group ends with the member.
void SmcrGroups::abandon(const Member& member, llc::DeleteLinkReason reason, Out out) {
    if (member.group != nullptr && member.first_contact) {
        member.group->end(reason, out);
    }
}

void SmcrGroups::refuse(Member& member, Refusal refusal, std::string detail, Out out) {
    const MemberId id = member.join.member;
    abandon(member, llc::DeleteLinkReason::kNone, out);
    if (member.assignment) {
        member.group->leave(id, *member.assignment, {.told = false}, out);
    }
    out.actions.push_back(JoinRefused{id, refusal, std::move(detail)});
    waiting_.erase(id);
    members_.erase(id);
}

void SmcrGroups::link_failed(Member& member, Reason reason, std::string detail, bool may_decline, Out out) {
    member.state = Member::State::kReady;  // there is nothing more to wait for
    waiting_.erase(member.join.member);
    out.actions.push_back(LinkFailed{member.join.member, reason, std::move(detail), may_decline});
}

}  // namespace smc::group
