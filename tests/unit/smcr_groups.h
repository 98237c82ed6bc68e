// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// SMC-R link groups of a server and a client, with simulated devices.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>

#include "actions.h"
#include "smc/group/smcr_groups.h"

namespace smc::test::groups {

using namespace smc::group;
using namespace std::chrono_literals;

inline const TimePoint kStart = TimePoint{} + 1h;                                  // not the clock's epoch
inline constexpr std::size_t kLink = 1000, kBuffer = std::size_t{2} * 256 * 1024;  // bytes of a link; of a buffer

template <class T>
long count(const Actions& actions) {
    return std::ranges::count_if(actions, [](const Action& action) { return std::holds_alternative<T>(action); });
}

// The notification of type T for a member.
template <class T>
std::optional<T> told(const Actions& actions, std::uint64_t member) {
    for (const Action& action : actions) {
        if (const auto* one = std::get_if<T>(&action); one != nullptr && one->member == MemberId{member}) {
            return *one;
        }
    }
    return std::nullopt;
}

struct Node {
    bool server;
    std::size_t memory = 100 * kBuffer;
    SmcrGroups groups{{.rmbes_per_rmb = 2, .link_bytes = kLink, .memory_limit = memory, .test_interval = 1h}};
    RoceGid gid = *RoceGid::parse(server ? "10.0.0.1" : "10.0.0.2");
    std::string pnet_id{};   // of the port with which members join
    std::uint16_t vlan = 0;  // of members' connections and of the GID with which they join
    ElementBytes bytes{};    // that members want; 0: the usual ones
    TimePoint now = kStart;
    bool devices_answer = true;
    bool neighbours_answer = true;  // false: connecting a queue pair finds no address of the peer
    bool has_second_link = true;
    std::size_t largest_buffer = SIZE_MAX;  // bytes that the device registers at once
    Actions log{};
    std::map<std::pair<GroupId, std::uint8_t>, QpEnd> peers{};  // by group and link
    std::vector<SendMessage> sent{};
    std::uint32_t number = 0;  // of queue pairs and memory

    void on(Actions actions) {
        for (std::size_t i = 0; i < actions.size(); i++) {
            log.push_back(actions[i]);
            const Actions more = devices_answer ? answer(log.back()) : Actions{};
            actions.insert(actions.end(), more.begin(), more.end());
        }
    }
    Actions answer(const Action& asked) {
        if (const auto* create = std::get_if<CreateLink>(&asked)) {
            if (!has_second_link && create->link != llc::kFirstLink) {
                return groups.link_refused(create->group, create->link, Refusal::kOutOfMemory, "", now);
            }
            return groups.link_created(create->group, create->link, {create->port.gid, {}, Qpn{++number}}, {}, false,
                                       now);
        }
        if (const auto* buffer = std::get_if<RegisterBuffer>(&asked)) {
            if (buffer->element_bytes * buffer->elements > largest_buffer) {
                return groups.buffer_refused(buffer->group, buffer->buffer, buffer->link, Refusal::kOutOfMemory, "",
                                             now);
            }
            return groups.buffer_registered(buffer->group, buffer->buffer, buffer->link, RKey{++number}, {}, now);
        }
        if (const auto* connect = std::get_if<ConnectLink>(&asked)) {
            peers[{connect->group, connect->link}] = connect->peer;
            return neighbours_answer ? groups.link_connected(connect->group, connect->link, now) : Actions{};
        }
        if (const auto* send = std::get_if<SendMessage>(&asked)) {
            sent.push_back(*send);
        }
        return {};
    }
    void join(std::uint64_t member, const clc::SmcrPeer& peer, TimePoint deadline = kNever) {
        const SmcrGroups::Join join{MemberId{member}, peer, {"device", 1, gid, 2, {}, pnet_id, vlan}, vlan, deadline,
                                    AlertToken{7},    bytes};
        on(server ? groups.join_as_server(join, now) : groups.join_as_client(join, now));
    }
    void await(std::uint64_t member, const clc::SmcrPeer& peer) { on(groups.await_link(MemberId{member}, peer, now)); }
    void leave(std::uint64_t member, SmcrGroups::Leaving how = {}) { on(groups.leave(MemberId{member}, how, now)); }
    void tick(TimePoint at) {
        const bool early = at < groups.next_deadline();
        Actions actions = groups.tick(now = at);
        CHECK((!early || actions.empty()));  // nothing happens before next_deadline()
        on(std::move(actions));
    }
    const SmcrGroup& group(std::uint64_t member) const { return *groups.group_of(MemberId{member}); }
};

struct Pair {
    Node server{.server = true}, client{.server = false};
    std::uint8_t limit = 255;    // connections of a link group
    std::uint8_t max_links = 1;  // likewise

    [[nodiscard]] clc::SmcrPeer proposal(const char* gid = "10.0.0.2") const {
        clc::SmcrPeer peer;
        peer.link.gid = *RoceGid::parse(gid);
        peer.max_connections = limit;
        peer.max_links = max_links;
        return peer;
    }
    [[nodiscard]] clc::SmcrPeer end_of(const Joined& joined) const {
        clc::SmcrPeer peer = proposal();
        peer.link = joined.local.link;
        peer.rmbe = joined.local.rmbe;
        peer.first_contact = joined.local.first_contact;
        return peer;
    }
    // Delivers messages and answers until there are none.
    void talk() {
        while (!server.sent.empty() || !client.sent.empty()) {
            Node& from = server.sent.empty() ? client : server;
            Node& to = server.sent.empty() ? server : client;
            for (const SendMessage& message : std::exchange(from.sent, {})) {
                for (const SmcrGroup* group : to.groups.all()) {
                    for (const auto& [number, link] : std::map(group->links().all())) {
                        if (link.own.is(from.peers[{message.group, message.link}])) {
                            to.on(to.groups.message(group->id(), number, message.bytes, to.now));
                        }
                    }
                }
            }
        }
    }
    // A first contact with a peer that no other member has, up to its queue pair.
    void contact(std::uint64_t member) {
        clc::SmcrPeer peer = proposal(("10.0.1." + std::to_string(member)).c_str());
        server.join(member, peer);
        peer.rmbe.rkey = RKey{static_cast<std::uint32_t>(member)};
        peer.first_contact = true;
        server.await(member, peer);
    }
    // From the Proposal until both ends run. Clears the logs first.
    Joined connect(std::uint64_t member) {
        server.log.clear();
        client.log.clear();
        server.join(member, proposal());
        talk();
        return confirm(member);
    }
    // Continues from the Accept until both ends run.
    Joined confirm(std::uint64_t member) {
        const Joined accept = told<Joined>(server.log, member).value();
        client.join(member, end_of(accept));
        talk();
        const Joined own = told<Joined>(client.log, member).value();
        client.await(member, end_of(accept));
        server.await(member, end_of(own));
        talk();
        for (Node* node : {&server, &client}) {
            REQUIRE(told<LinkReady>(node->log, member));
            node->groups.running(MemberId{member});
        }
        // The Confirm names the link that the Accept has named.
        CHECK(server.group(member).links().with_peer(own.local.link) == accept.assignment.link);
        return accept;
    }
};

}  // namespace smc::test::groups
