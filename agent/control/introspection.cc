// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/control/introspection.h"

#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "agent/control/bypass_view.h"
#include "agent/control/describe.h"
#include "agent/control/dry_run.h"
#include "agent/control/explain.h"
#include "agent/control/program_view.h"
#include "agent/log/log.h"

namespace smc {

namespace {

using nlohmann::json;

json events(std::uint64_t after) {
    json lines = json::array();
    for (const LogLine& line : log_lines(after)) {
        const auto us = std::chrono::duration_cast<std::chrono::microseconds>(line.when.time_since_epoch()).count();
        lines.push_back({{"number", line.number}, {"us", us}, {"level", line.level}, {"text", line.text}});
    }
    return {{"pid", ::getpid()}, {"events", std::move(lines)}};
}

// How many tuned and how many bypassed connections an answer lists at most.
constexpr std::size_t kMostListed = 10000;

// "0000:3b:00.0"; empty for a device that is not on that bus.
std::string pci_id(const std::string& device) {
    std::error_code error;
    const auto target = std::filesystem::read_symlink("/sys/class/infiniband/" + device + "/device", error);
    return error ? "" : target.filename().string();
}

}  // namespace

json Introspection::answer(const json& request) const {
    const std::string command = request.value("command", "");
    if (command == "status") {
        json all = status();
        if (request.value("connections", true)) {
            all["connections"] = own_connections();
        }
        return all;
    }
    if (command == "connections") {
        return connections(request.value("ended", false));
    }
    if (command == "explain") {
        return explain(p_, request);
    }
    if (command == "linkgroups") {
        return link_groups();
    }
    if (command == "devices") {
        return devices();
    }
    if (command == "probe") {
        json answer = describe(p_.verdict);
        answer["programs"] = programs(p_);
        return answer;
    }
    if (command == "bypass") {
        return describe(p_.bypass.get(), p_.rounds.get());
    }
    if (command == "events") {
        return events(request.value("after", std::uint64_t{0}));
    }
    if (command == "dry-run") {
        return dry_run(p_, request.value("after", std::uint64_t{0}));
    }
    return {{"error", "unknown command \"" + command + "\""}};
}

Introspection::Spread Introspection::spread() const {
    Spread counts;
    for (const auto& [id, c] : p_.connections.all()) {
        if (c->smcr) {
            counts[c->smcr->group_id][p_.smcr_groups.link_of(group::GroupId{c->smcr->group_id}, c->smcr->token)]++;
        }
    }
    return counts;
}

json Introspection::links_of(const group::SmcrGroup& group, const Spread& spread) const {
    const auto of_group = spread.find(static_cast<std::uint32_t>(group.id()));
    const auto count = [&](std::uint8_t number) {
        const auto it = of_group == spread.end() ? std::map<std::uint8_t, unsigned>::const_iterator()
                                                 : of_group->second.find(number);
        return of_group == spread.end() || it == of_group->second.end() ? 0U : it->second;
    };
    json links = json::array();
    for (const auto& [number, link] : group.links().all()) {
        const auto* live = p_.smcr_groups.find(group.id(), number);
        if (live == nullptr) {
            continue;
        }
        const smcr::LinkDriver::Counters& counters = live->driver->counters();
        const char* state = link.state == group::GroupLink::State::kUp        ? "LINK_ACTIVE"
                            : link.state == group::GroupLink::State::kRetired ? "LINK_INACTIVE"
                                                                              : "LINK_ACTIVATING";
        links.push_back({{"number", number},
                         {"net_device", live->device.gid.net_device},
                         {"state", state},
                         {"connections", count(number)},
                         {"link_uid", text(link.own_id)},
                         {"peer_uid", text(link.peer_id)},
                         {"device", link.port.device},
                         {"port", link.port.number},
                         {"local_gid", link.own.gid.text()},
                         {"peer_gid", link.peer.gid.text()},
                         {"qpn", text(link.own.qpn)},
                         {"peer_qpn", text(link.peer.qpn)},
                         {"messages_sent", counters.messages_sent.load()},
                         {"messages_received", counters.messages_received.load()},
                         {"bytes_written", counters.bytes_written.load()},
                         {"unknown_tokens", counters.unknown_tokens.load()},
                         {"stale_messages", counters.stale.load()},
                         {"queue_full", counters.full.load()}});
    }
    return links;
}

json Introspection::link_groups() const {
    json smcd = json::array();
    for (const auto& [key, group] : p_.smcd_groups.all()) {
        smcd.push_back({{"id", group.id},
                        {"peer_gid", key.peer.text()},
                        {"chid", text(key.chid)},
                        {"eid", key.eid.text()},
                        {"host_name", group.host_name},
                        {"connections", group.connections}});
    }
    const Spread counts = spread();
    json smcr = json::array();
    for (const group::SmcrGroup* group : p_.smcr_groups.groups().all()) {
        const clc::SmcrPeer& peer = group->peer();
        smcr.push_back({{"id", static_cast<std::uint32_t>(group->id())},
                        {"role", group->key().server ? "SERV" : "CLNT"},
                        {"type", group::text(group->links().type())},
                        {"degraded", group->links().degraded()},
                        {"version", group->key().version},
                        {"release", peer.release},
                        {"peer_id", text(peer.id)},
                        {"host_name", peer.host_name},
                        {"peer_os", clc::text(peer.os)},
                        {"direct", peer.link_type == clc::LinkType::kDirect},
                        {"eid", group->key().eid.text()},
                        {"pnet_id", group->key().pnet_id},
                        {"vlan", group->key().vlan},
                        {"connections", group->connections()},
                        {"max_connections", group->max_connections()},
                        {"max_links", peer.max_links},
                        {"rmbs", group->rmbs()},
                        {"rmbe_bytes", p_.config.roce.rmbe_kib * 1024},
                        {"eye_catchers", group->eye_catchers()},
                        {"links", links_of(*group, counts)}});
    }
    return {{"smcr", smcr}, {"smcd", smcd}};
}

json Introspection::devices() const {
    json smcr = json::array();
    for (const roce::Port& port : p_.roce_devices.ports()) {
        json gids = json::array(), gids_v1 = json::array();
        for (const roce::PortGid& gid : port.gids) {
            gids.push_back(gid.gid.text());
        }
        for (const roce::PortGid& gid : port.gids_v1) {
            gids_v1.push_back(gid.gid.text());
        }
        std::size_t links = 0;
        for (const group::SmcrGroup* group : p_.smcr_groups.groups().all()) {
            for (const auto& [number, link] : group->links().all()) {
                links += link.port.device == port.device && link.port.number == port.number ? 1 : 0;
            }
        }
        const roce::PortGid* first = port.first_gid();
        smcr.push_back({{"net_device", first != nullptr ? first->net_device : ""},
                        {"device", port.device},
                        {"port", port.number},
                        {"state", port.active ? "ACTIVE" : "INACTIVE"},
                        {"pci_id", pci_id(port.device)},
                        {"mtu", clc::bytes_of(port.mtu)},
                        {"gids", gids},
                        {"gids_v1", gids_v1},
                        {"pnet_id", p_.roce_devices.pnets().of_port(port.device, port.number)},
                        {"links", links}});
    }
    json smcd = json::array();
    for (const auto& fabric : p_.fabrics.all()) {
        const auto groups = std::ranges::count(p_.smcd_groups.all(), fabric->chid(),
                                               [](const auto& entry) { return entry.first.chid; });
        smcd.push_back({{"provider", fabric->provider()},
                        {"device", fabric->device()},
                        {"wake_up", fabric->wake_up()},
                        {"chid", text(fabric->chid())},
                        {"gid", fabric->gid().text()},
                        {"groups", groups},
                        {"dmbs", fabric->registered()}});
    }
    json pnets = json::array();
    for (const Pnet& pnet : p_.config.roce.pnets) {
        pnets.push_back({{"id", pnet.id}, {"devices", pnet.devices}, {"networks", pnet.networks}});
    }
    return {{"smcr", smcr}, {"smcd", smcd}, {"pnets", pnets}, {"refused", p_.roce_devices.refused()}};
}

// Shows the link that the connection uses now, which may not be the one that it began on.
void Introspection::update_link(json& connection, const SmcrView& view) const {
    const group::GroupId id{view.group_id};
    const group::SmcrGroup* group = p_.smcr_groups.groups().find(id);
    const std::uint8_t number = p_.smcr_groups.link_of(id, view.token);
    const group::GroupLink* link = group != nullptr ? group->links().find(number) : nullptr;
    const auto* live = p_.smcr_groups.find(id, number);
    if (link == nullptr || live == nullptr) {
        return;
    }
    connection.update({{"link_id", text(link->own_id)},
                       {"device", link->port.device},
                       {"port", link->port.number},
                       {"net_device", live->device.gid.net_device},
                       {"gid", link->own.gid.text()},
                       {"peer_gid", link->peer.gid.text()}});
}

json Introspection::own_connections() const {
    json list = json::array();
    for (const auto& [id, c] : p_.connections.all()) {
        list.push_back(describe(*c));
        if (const auto group = p_.cgroups.groups().find(c->cgroup); group != p_.cgroups.groups().end()) {
            list.back()["cgroup"] = group->second.path;
            if (!group->second.pod.empty()) {
                list.back()["pod"] = group->second.pod;
            }
        }
        if (c->smcr) {
            update_link(list.back().at("smcr"), *c->smcr);
        }
    }
    return list;
}

json Introspection::connections(bool ended) const {
    json list = json::array();
    bool whole = true;
    if (ended) {
        for (const auto& c : p_.connections.ended()) {
            list.push_back(describe(*c));
        }
    } else {
        list = own_connections();
        std::set<std::uint64_t> bypassed;
        if (p_.bypass != nullptr) {
            for (const auto& member : p_.bypass->members(kMostListed)) {
                list.push_back(describe(member));
                bypassed.insert(member.cookie);
            }
        }
        const bpf::Tuned tuned = p_.programs.tuned(kMostListed);
        for (const auto& [cookie, socket] : tuned.sockets) {
            if (!bypassed.contains(cookie)) {
                list.push_back(describe(cookie, socket));
            }
        }
        whole = tuned.whole;
    }
    return {{"connections", std::move(list)}, {"whole", whole}};
}

}  // namespace smc
