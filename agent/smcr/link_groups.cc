// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/smcr/link_groups.h"

#include "agent/smcr/route.h"

#include <algorithm>

namespace smc::smcr {

clc::LocalRmbe LinkGroups::Joined::local() const {
    clc::LocalRmbe out{group->address(), seat->rmbe(), first_contact, clc::LinkType::kIndirect};
    if (first_contact && group->key().server && is_direct(out.link.gid, group->key().peer_gid)) {
        out.link_type = clc::LinkType::kDirect;
    }
    return out;
}

Result<std::shared_ptr<LinkGroup>> LinkGroups::create(const GroupKey& key, const Devices::Usable& device,
                                                      unsigned max_connections) {
    const std::uint32_t id = next_id_++;
    LinkGroup::Parts parts{
        io_, engine_, config_, registered_, max_connections, blocking_, connecting_, [this](LinkGroup& group) {
            groups_.erase(group.id());
        }};
    auto group = LinkGroup::create(std::move(parts), id, key, device);
    if (group) {
        groups_.emplace(id, *group);
    }
    return group;
}

std::shared_ptr<LinkGroup> LinkGroups::find(const GroupKey& key, const PeerId& peer) const {
    const auto it = std::ranges::find_if(groups_, [&](const auto& entry) {
        const LinkGroup& group = *entry.second;
        return group.key() == key && group.active() && group.has_room() &&
               (peer == PeerId{} || group.peer().id == peer);
    });
    return it == groups_.end() ? nullptr : it->second;
}

std::shared_ptr<LinkGroup> LinkGroups::forming(const GroupKey& key) const {
    const auto it = std::ranges::find_if(
        groups_, [&](const auto& entry) { return entry.second->key() == key && !entry.second->settled(); });
    return it == groups_.end() ? nullptr : it->second;
}

asio::awaitable<Result<LinkGroups::Joined>> LinkGroups::serve(const clc::RocePeer& peer, const RoceGid& local,
                                                              TimePoint deadline) {
    const auto device = devices_.usable_for(local);
    if (!device) {
        co_return Error{ENODEV, "no RoCE port"};
    }
    const GroupKey key{true, peer.version, peer.link.gid, device->gid.gid, peer.eid};
    for (;;) {
        while (const auto other = forming(key)) {
            const auto settled = std::make_shared<Event>(io_);
            other->when_settled([settled] { settled->set(); });
            if (!co_await settled->wait(deadline)) {
                co_return Error{EBUSY, "waiting for the first contact of another connection"};
            }
        }
        Joined joined;
        joined.group = find(key, peer.id);
        if (!joined.group) {
            auto created = create(key, *device, peer.max_connections);
            if (!created) {
                co_return created.error();
            }
            joined.group = *created;
            joined.first_contact = true;
        }
        auto seat = co_await joined.group->take_seat(deadline);
        if (seat) {
            joined.seat = *seat;
            co_return joined;
        }
        if (joined.first_contact) {
            abandon(joined.group, llc::DeleteLinkReason::kNone);
        }
        if (seat.error().code != EAGAIN) {
            co_return seat.error();
        }
    }
}

asio::awaitable<Result<LinkGroups::Joined>> LinkGroups::follow(const clc::RocePeer& peer, const RoceGid& local,
                                                               TimePoint deadline) {
    Joined joined;
    joined.first_contact = peer.first_contact;
    if (!peer.first_contact) {
        const auto it = std::ranges::find_if(groups_, [&](const auto& entry) {
            const LinkGroup& group = *entry.second;
            return !group.key().server && group.key().version == peer.version && group.peer().id == peer.id &&
                   group.key().eid == peer.eid && group.active() && group.is_with(peer.link);
        });
        if (it == groups_.end()) {
            co_return Error{ESTALE, "the server named a link that is not known here"};
        }
        joined.group = it->second;
    } else {
        const auto device = devices_.usable_for(local);
        if (!device) {
            co_return Error{ENODEV, "no RoCE port"};
        }
        const GroupKey key{false, peer.version, peer.link.gid, device->gid.gid, peer.eid};
        auto created = create(key, *device, peer.max_connections);
        if (!created) {
            co_return created.error();
        }
        joined.group = *created;
    }
    auto seat = co_await joined.group->take_seat(deadline);
    if (!seat) {
        abandon(peer.first_contact ? joined.group : nullptr, llc::DeleteLinkReason::kNone);
        co_return seat.error();
    }
    joined.seat = *seat;
    if (peer.first_contact) {
        if (const auto connected = co_await joined.group->connect(peer); !connected) {
            abandon(joined.group, llc::DeleteLinkReason::kNone);
            co_return connected.error();
        }
    } else if (!joined.group->know(peer.rmbe.rkey)) {
        co_return Error{EMFILE, "the server has too many RMBs"};
    }
    co_return joined;
}

void LinkGroups::abandon(const std::shared_ptr<LinkGroup>& group, llc::DeleteLinkReason reason) {
    if (group && !group->is_over()) {
        group->end(reason);
    }
}

void LinkGroups::device_gone(const std::string& name) {
    const auto groups = groups_;  // they leave the map
    for (const auto& [id, group] : groups) {
        if (group->device().context->name() == name) {
            group->down("device " + name + " is gone");
        }
    }
}

void LinkGroups::end_all() {
    const auto groups = groups_;
    for (const auto& [id, group] : groups) {
        group->end(llc::DeleteLinkReason::kOperator);
        group->down("the agent stops");  // without waiting for the answer
    }
}

void LinkGroups::tick(TimePoint now) {
    const auto groups = groups_;
    for (const auto& [id, group] : groups) {
        group->tick(now);
    }
}

}  // namespace smc::smcr
