// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Results and events of the link groups and their links, and their effects on members that wait. smcr_members.cc has
// the members.
#include "smc/group/smcr_groups.h"

#include <algorithm>

namespace smc::group {

// --- results --------------------------------------------------------------------------------------------------------

Actions SmcrGroups::link_created(GroupId id, std::uint8_t link, const QpEnd& own, LinkId own_id, bool direct,
                                 TimePoint now) {
    Actions actions;
    SmcrGroup* group = lookup(id);
    if (group != nullptr) {
        group->link_created(link, own, own_id, direct, {actions, now});
    }
    return follow_up(group, std::move(actions), now);
}

Actions SmcrGroups::link_connected(GroupId id, std::uint8_t link, TimePoint now) {
    Actions actions;
    connecting_.erase(id);
    SmcrGroup* group = lookup(id);
    if (group != nullptr) {
        group->link_connected(link, {actions, now});
    }
    return follow_up(group, std::move(actions), now);
}

Actions SmcrGroups::link_refused(GroupId id, std::uint8_t link, Refusal refusal, const std::string& detail,
                                 TimePoint now) {
    Actions actions;
    connecting_.erase(id);
    SmcrGroup* group = lookup(id);
    if (group != nullptr) {
        group->link_refused(link, refusal, detail, {actions, now});
    }
    return follow_up(group, std::move(actions), now);
}

Actions SmcrGroups::buffer_registered(GroupId id, BufferId buffer, std::uint8_t link, RKey rkey, VirtualAddress address,
                                      TimePoint now) {
    Actions actions;
    SmcrGroup* group = lookup(id);
    if (group != nullptr) {
        group->buffer_registered(buffer, link, rkey, address, {actions, now});
    }
    return follow_up(group, std::move(actions), now);
}

Actions SmcrGroups::buffer_refused(GroupId id, BufferId buffer, std::uint8_t link, Refusal refusal,
                                   const std::string& detail, TimePoint now) {
    Actions actions;
    SmcrGroup* group = lookup(id);
    if (group != nullptr) {
        group->buffer_refused(buffer, link, refusal, detail, {actions, now});
    }
    return follow_up(group, std::move(actions), now);
}

Actions SmcrGroups::element_returned(GroupId id, BufferId buffer, std::uint8_t element, TimePoint now) {
    Actions actions;
    SmcrGroup* group = lookup(id);
    if (group != nullptr) {
        group->element_returned(buffer, element, {actions, now});
    }
    return follow_up(group, std::move(actions), now);
}

Actions SmcrGroups::message(GroupId id, std::uint8_t link, wire::Bytes bytes, TimePoint now) {
    Actions actions;
    SmcrGroup* group = lookup(id);
    if (group != nullptr) {
        group->message(link, bytes, {actions, now});
        for (const llc::RTokenSet& rmb : group->take_forgotten()) {
            end_those_in(*group, rmb, {actions, now});
        }
    }
    return follow_up(group, std::move(actions), now);
}

void SmcrGroups::heard(GroupId id, std::uint8_t link, std::uint64_t messages, TimePoint now) {
    if (SmcrGroup* group = lookup(id); group != nullptr) {
        group->heard(link, messages, now);
    }
}

Actions SmcrGroups::link_down(GroupId id, std::uint8_t link, const std::string& why, TimePoint now) {
    Actions actions;
    SmcrGroup* group = lookup(id);
    if (group != nullptr) {
        group->link_down(link, why, {actions, now});
    }
    return follow_up(group, std::move(actions), now);
}

Actions SmcrGroups::device_gone(const std::string& device, TimePoint now) {
    Actions actions;
    for (auto& [id, group] : groups_) {
        group->device_gone(device, {actions, now});
    }
    return follow_up(nullptr, std::move(actions), now);
}

Actions SmcrGroups::set_ports(std::vector<LocalPort> ports, std::vector<LocalPort> down, TimePoint now) {
    Actions actions;
    ports_ = std::move(ports);
    down_ = std::move(down);
    for (auto& [id, group] : groups_) {
        group->ports_changed({actions, now});
        group->leave_dead_ports({actions, now});
        group->tick({actions, now});
    }
    return follow_up(nullptr, std::move(actions), now);
}

Actions SmcrGroups::end_all(TimePoint now) {
    Actions actions;
    for (auto& [id, group] : groups_) {
        group->end(llc::DeleteLinkReason::kOperator, {actions, now});
        group->down("the agent stops", {actions, now});  // without waiting for the peer's answer
    }
    return follow_up(nullptr, std::move(actions), now);
}

Actions SmcrGroups::tick(TimePoint now) {
    Actions actions;
    expire({actions, now});
    for (auto& [id, group] : groups_) {
        group->tick({actions, now});
    }
    return follow_up(nullptr, std::move(actions), now);
}

void SmcrGroups::set_in_use(std::size_t bytes) {
    const std::size_t own = registered_ - ending_;
    ending_ = bytes > own ? bytes - own : 0;
    registered_ = own + ending_;
}

TimePoint SmcrGroups::next_deadline() const {
    TimePoint next = kNever;
    for (const auto& [id, group] : groups_) {
        next = std::min(next, group->next_deadline());
    }
    for (const MemberId id : waiting_) {
        const Member& member = members_.at(id);
        next = std::min({next, member.join.deadline, member.chooses_at});
    }
    return next;
}

// --- effects on waiting members and ended groups --------------------------------------------------------------------

Actions SmcrGroups::follow_up(const SmcrGroup* changed, Actions actions, TimePoint now) {
    const Out out{actions, now};
    // If the group cannot grow, all members that wait for an RMBE of it are refused: another try would fail, too.
    if (SmcrGroup* group = changed != nullptr ? lookup(changed->id()) : nullptr;
        group != nullptr && group->state() != SmcrGroup::State::kOver) {
        if (const auto refusal = group->take_refusal()) {
            const auto waiting = waiting_;
            for (const MemberId id : waiting) {
                Member& member = members_.at(id);
                if (member.group == group && member.state == Member::State::kAwaitingRmbe) {
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
        const auto waiting = waiting_;  // a copy: advance() removes members from waiting_
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
               choosing ? "the first contact of another connection with this peer took too long"
                        : "the RMBE or the queue pair was not ready in time",
               out);
    }
}

void SmcrGroups::forget_groups(Out out) {
    std::erase_if(groups_, [&](const auto& entry) {
        const SmcrGroup* group = entry.second.get();
        const bool awaited =
            std::ranges::any_of(waiting_, [&](MemberId member) { return members_.at(member).group == group; });
        if (awaited || !group->can_be_forgotten()) {  // G3
            return false;
        }
        out.actions.push_back(ForgetGroup{entry.first});
        return true;
    });
}

// --- queries --------------------------------------------------------------------------------------------------------

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
        return group.is_with(key, peer) && group.active() && group.has_room();
    });
    return it == groups_.end() ? nullptr : it->second.get();
}

std::optional<TimePoint> SmcrGroups::forming_until(const SmcrKey& key, const PeerId& peer, TimePoint now) const {
    std::optional<TimePoint> last;
    for (const auto& [id, group] : groups_) {
        const TimePoint until = group->began() + terms_.first_contact;
        if (group->is_with(key, peer) && !group->settled() && now < until) {
            last = std::max(last.value_or(until), until);
        }
    }
    return last;
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
    return it == members_.end() || !it->second.assignment ? nullptr : it->second.group;
}

const Assignment* SmcrGroups::assignment_of(MemberId member) const {
    const auto it = members_.find(member);
    return it == members_.end() || !it->second.assignment ? nullptr : &*it->second.assignment;
}

bool SmcrGroups::named_link_is_up(MemberId id) const {
    const auto it = members_.find(id);
    if (it == members_.end()) {
        return false;
    }
    const Member& member = it->second;
    return member.server || member.first_contact || (member.group != nullptr && member.group->is_up(member.peer_link));
}

std::uint8_t SmcrGroups::peer_link_of(MemberId member) const {
    const auto it = members_.find(member);
    return it == members_.end() ? llc::kFirstLink : it->second.peer_link;
}

}  // namespace smc::group
