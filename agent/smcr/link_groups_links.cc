// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Queue pairs and links: created, connected, handed to the engine, retired and ended.
#include <algorithm>
#include <asio/post.hpp>
#include <utility>

#include "agent/log/log.h"
#include "agent/smcr/link_groups.h"
#include "os/clock.h"
#include "os/random.h"
#include "os/rtnetlink.h"

namespace smc::smcr {

namespace {

using group::GroupId;

// Destroying a queue pair takes longer than this only if its packets wait to leave the port.
constexpr std::chrono::milliseconds kWorthTelling{100};

Error nobody_waits() {
    return {ECANCELED, "connecting a queue pair"};
}

Endpoint endpoint_of(const RoceGid& gid) {
    return {gid.normalised().bytes, 0};
}

bool is_direct(const RoceGid& own, const RoceGid& peer) {
    const auto rtnetlink = Rtnetlink::open();
    const auto route = rtnetlink ? rtnetlink->route(endpoint_of(own), endpoint_of(peer)) : std::nullopt;
    return route && !route->gateway;
}

}  // namespace

void LinkGroups::on(const group::CreateLink& action) {
    if (const auto created = create_link(action); !created) {
        carry_out(groups_.link_refused(action.group, action.link, refusal_of(created.error()), created.error().text(),
                                       os::now()));
    }
}

// The callbacks run on the engine's thread and may outlive the group, so they post to the control thread.
LinkDriver::Callbacks LinkGroups::callbacks_for(GroupId id, std::uint8_t number, unsigned serial) {
    return {[&io = io_, weak = std::weak_ptr(self_), id, number, serial](std::vector<std::uint8_t> message) {
                asio::post(io, [weak, id, number, serial, message = std::move(message)] {
                    const auto self = weak.lock();
                    LiveLink* link = self ? (*self)->live(id, number) : nullptr;
                    if (link != nullptr && link->serial == serial) {
                        link->driver->llc_done();
                        log()->debug("link group {} link {}: LLC type {:#04x} of {} bytes",
                                     static_cast<std::uint32_t>(id), number, message.empty() ? 0 : message[0],
                                     message.size());
                        (*self)->hear(id);
                        (*self)->carry_out((*self)->groups_.message(id, number, message, os::now()));
                    }
                });
            },
            [&io = io_, weak = std::weak_ptr(self_), id, number, serial](std::string why) {
                asio::post(io, [weak, id, number, serial, why = std::move(why)] {
                    const auto self = weak.lock();
                    const LiveLink* link = self ? (*self)->live(id, number) : nullptr;
                    if (link != nullptr && link->serial == serial) {
                        (*self)->hear(id);
                        (*self)->carry_out((*self)->groups_.link_down(id, number, why, os::now()));
                    }
                });
            },
            [destroying = destroying_, id, number](std::shared_ptr<void> remains) {
                asio::post(*destroying, [remains = std::move(remains), id, number, begun = os::now()]() mutable {
                    remains.reset();
                    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(os::now() - begun);
                    if (took >= kWorthTelling) {
                        log()->info(
                            "link group {} link {}: destroying its queue pair took {} ms: packets were still queued",
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
    there.serial = ++last_serial_;
    // Links on one device share a protection domain, so that memory is registered once for each device.
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
    there.driver = std::make_shared<LinkDriver>(std::move(*link), group.driver, action.link,
                                                callbacks_for(id, action.link, there.serial), last_messages_);
    if (group.engine == nullptr) {
        group.engine = &engines_.least_busy();
    }
    group.links[action.link] = std::move(there);
    const bool direct = is_direct(own.gid, action.peer_gid);
    carry_out(groups_.link_created(id, action.link, own, LinkId{random_nonzero<std::uint32_t>()}, direct, os::now()));
    return {};
}

// On a thread of the pool: the kernel may have to resolve the neighbour's address, and waits a second for an answer.
void LinkGroups::on(const group::ConnectLink& action) {
    const LiveLink* there = live(action.group, action.link);
    if (there == nullptr) {
        return connected(action, nullptr, nobody_waits());
    }
    asio::thread_pool& pool = action.link == llc::kFirstLink ? connecting_ : connecting_further_;
    asio::post(pool, [&io = io_, weak = std::weak_ptr(self_), driver = there->driver, action]() mutable {
        // The group has dropped the link meanwhile: only this job still refers to it.
        const auto result =
            driver.use_count() == 1 ? Result<void>(nobody_waits()) : driver->link().connect(action.peer);
        asio::post(io, [weak, action, driver = std::move(driver), result] {
            if (const auto self = weak.lock()) {
                (*self)->connected(action, driver, result);
            }
        });
    });
}

// The link may have been dropped meanwhile. The groups are told in any case, because they count attempts under way.
void LinkGroups::connected(const group::ConnectLink& of, const std::shared_ptr<LinkDriver>& driver,
                           const Result<void>& result) {
    const auto [id, number, peer] = of;
    const LiveLink* there = live(id, number);
    if (there != nullptr && there->driver != driver) {
        return;  // a newer link has this number
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
        there->driver->keep(group->memory());  // the group may be forgotten before the link has ended
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

// The last message of a connection whose link has gone is sent by any other link of the group.
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

}  // namespace smc::smcr
