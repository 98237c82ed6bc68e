// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Links: queue pairs of the simulated devices, and the drivers of the links.
#include <algorithm>

#include "link_groups.h"

namespace smc::sim {

using group::GroupId;
using group::Refusal;

void LinkGroups::on(const group::CreateLink& action) {
    const GroupId id = action.group;
    const std::uint8_t number = action.link;
    const auto port = std::ranges::find_if(ports_, [&](const auto& p) { return p->device == action.port.device; });
    if (world_.strikes(Mishap::kLinkRefused)) {
        return carry_out(groups_.link_refused(id, number, Refusal::kDeviceFailed, "simulated", world_.now()));
    }
    auto link = std::make_unique<SimLink>(
        world_, network_, **port,
        static_cast<std::uint32_t>(world_.chance(50) ? world_.between(6, 8) : world_.between(9, 64)));
    const QpEnd own = link->end();
    smcr::LinkDriver::Callbacks callbacks{
        [this, id, number](std::vector<std::uint8_t> message) {
            world_.after(world_.local(), [this, id, number, message = std::move(message)] {
                if (LiveLink* there = live(id, number)) {
                    there->driver->llc_done();
                    tell(name(id) + " hears LLC type " + std::to_string(message.empty() ? 0 : message[0]) +
                         " on link " + std::to_string(number));
                    hear(id);
                    carry_out(groups_.message(id, number, message, world_.now()));
                }
            });
        },
        [this, id, number](const std::string& why) {
            world_.after(world_.local(), [this, id, number, why] {
                tell(name(id) + " lost link " + std::to_string(number) + ": " + why);
                hear(id);
                carry_out(groups_.link_down(id, number, why, world_.now()));
            });
        },
        [this, weak = std::weak_ptr(destroying_)](std::shared_ptr<void> remains) {
            if (!weak.expired()) {
                destroy_later(std::move(remains));
            }
        },
        [this, id, weak = std::weak_ptr(destroying_)] {
            if (!weak.expired()) {
                world_.after(world_.local(), [this, id] { kick_all(id); });
            }
        }};
    Live& group = live_[id];
    group.links[number] = {
        std::make_shared<smcr::LinkDriver>(std::move(link), group.driver, number, std::move(callbacks)), port->get()};
    const auto link_id = static_cast<std::uint32_t>(id) << 8 | number;
    carry_out(groups_.link_created(id, number, own, LinkId{link_id}, world_.chance(50), world_.now()));
}

// Destroys a queue pair late. On a device that may take seconds, while packets of the queue pair wait to leave.
void LinkGroups::destroy_later(std::shared_ptr<void> remains) {
    if (!world_.struck(Mishap::kLateWrites)) {
        return;
    }
    const std::uint64_t number = next_destroyed_++;
    destroying_->emplace(number, std::move(remains));
    world_.after(world_.below(500) * std::chrono::milliseconds(1), [this, number] { destroying_->erase(number); });
}

void LinkGroups::kick_all(group::GroupId id) {
    if (Live* group = live(id)) {
        for (const auto& [number, link] : group->links) {
            engine_.kick(link.driver);
        }
    }
}

void LinkGroups::on(const group::ConnectLink& action) {
    world_.after(world_.network(), [this, id = action.group, number = action.link, peer = action.peer] {
        LiveLink* there = live(id, number);
        if (there == nullptr || world_.strikes(Mishap::kLinkNotConnected)) {
            return carry_out(groups_.link_refused(id, number, Refusal::kUnreachable, "simulated", world_.now()));
        }
        (void)there->driver->link().connect(peer);
        engine_.add_task(there->driver);
        carry_out(groups_.link_connected(id, number, world_.now()));
    });
}

void LinkGroups::on(const group::UseLink& action) {
    if (LiveLink* there = live(action.group, action.link)) {
        live(action.group)->driver->use(action.link, there->driver);
    }
}

void LinkGroups::on(const group::RetireLink& action) {
    if (LiveLink* there = live(action.group, action.link)) {
        live(action.group)->driver->retire(action.link);
        engine_.kick(there->driver);
    }
}

void LinkGroups::on(const group::EndLink& action) {
    Live* group = live(action.group);
    if (LiveLink* there = live(action.group, action.link)) {
        group->driver->retire(action.link);
        there->driver->keep(group->memory());
        const auto end = [this, driver = there->driver, action] {
            driver->end(action.why, action.at_once);
            engine_.kick(driver);
        };
        if (world_.strikes(Mishap::kEndsLate)) {  // as on Linux, where the connections have left the link long before
            world_.after(world_.below(1000) * std::chrono::milliseconds(1), end);
            engine_.kick(there->driver);
        } else {
            end();
        }
        group->links.erase(action.link);
    }
}

void LinkGroups::on(const group::EndGroup& action) {
    if (Live* group = live(action.group)) {
        group->driver->close();
        for (auto& [number, link] : group->links) {
            link.driver->keep(group->memory());
            link.driver->end(action.why);
            engine_.kick(link.driver);
        }
    }
}

}  // namespace smc::sim
