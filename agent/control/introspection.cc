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
#include "agent/log/log.h"
#include "smc_version.h"  // generated: kVersion

namespace smc {

namespace {

using nlohmann::json;

json texts(const std::vector<Eid>& eids) {
    json list = json::array();
    for (const Eid& eid : eids) {
        list.push_back(eid.text());
    }
    return list;
}

json events(std::uint64_t after) {
    json lines = json::array();
    for (const LogLine& line : log_lines(after)) {
        const auto us = std::chrono::duration_cast<std::chrono::microseconds>(line.when.time_since_epoch()).count();
        lines.push_back({{"number", line.number}, {"us", us}, {"level", line.level}, {"text", line.text}});
    }
    return {{"events", std::move(lines)}};
}

// What an answer has room for, beside the agent's own.
constexpr std::size_t kMostTuned = 10000;

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
        all["connections"] = own_connections();
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
        return describe(p_.verdict);
    }
    if (command == "bypass") {
        return describe(p_.bypass);
    }
    if (command == "events") {
        return events(request.value("after", std::uint64_t{0}));
    }
    if (command == "dry-run") {
        return dry_run(p_);
    }
    return {{"error", "unknown command \"" + command + "\""}};
}

json Introspection::status() const {
    json spaces = json::array();
    for (const auto& space : p_.namespaces.all()) {
        spaces.push_back({{"inode", space->inode()},
                          {"slot", space->slot()},
                          {"devices", space->devices()},
                          {"ipv4", space->obstacle(bpf::Hooks::kIpv4).empty()},
                          {"ipv6", space->obstacle(bpf::Hooks::kIpv6).empty()},
                          {"ipv4_obstacle", space->obstacle(bpf::Hooks::kIpv4)},
                          {"ipv6_obstacle", space->obstacle(bpf::Hooks::kIpv6)}});
    }
    json counters = json::object();
    for (int i = 0; i < SMC_DECISIONS; i++) {
        const auto decision = static_cast<smc_decision>(i);
        counters[bpf::Programs::decision_name(decision)] = p_.programs.counter(decision);
    }
    json traffic = json::array();
    for (const auto& [path, sum] : p_.connections.traffic()) {
        traffic.push_back({{"path", name(path)}, {"sent", sum.sent}, {"received", sum.received}});
    }
    json durations = json::array();
    for (const auto& [path, histogram] : p_.connections.durations()) {
        durations.push_back({{"path", name(path)},
                             {"bounds_s", Durations::kBounds},
                             {"counts", histogram.counts()},
                             {"sum_s", histogram.sum()}});
    }
    json maps =
        json::array({{{"map", "smc_cgroups"}, {"entries", p_.cgroups.groups().size()}, {"room", SMC_MAX_CGROUPS}},
                     {{"map", "smc_netns"}, {"entries", p_.namespaces.all().size()}, {"room", SMC_MAX_NETNS}}});
    for (const auto& one : p_.programs.fill()) {
        maps.push_back({{"map", one.map}, {"entries", one.entries}, {"room", one.room}});
    }
    json totals = json::array();
    for (const auto& [key, count] : p_.connections.totals()) {
        totals.push_back({{"path", name(key.first)}, {"reason", describe(key.second)}, {"count", count}});
    }
    std::size_t enrolled = 0;
    for (const auto& [id, group] : p_.cgroups.groups()) {
        enrolled += group.enrolled ? 1 : 0;
    }
    const std::string obstacle = p_.obstacle();
    const auto uptime = std::chrono::steady_clock::now() - started_;
    return {{"agent",
             {{"version", kVersion},
              {"pid", ::getpid()},
              {"uptime_s", std::chrono::duration<double>(uptime).count()},
              {"serving", obstacle.empty()},
              {"obstacle", obstacle},
              {"draining", p_.drain.on},
              {"live", p_.connections.live()},
              {"host_name", p_.node.host_name}}},
            {"ism",
             {{"provider", p_.fabric.provider()},
              {"directory", p_.config.ism_directory},
              {"gid", p_.node.gid.text()},
              {"chid", text(p_.node.chid)},
              {"dmbs", p_.fabric.registered()},
              {"dmb_bytes", p_.config.dmb_kib * 1024},
              {"pooled", p_.smcd_pool.kept()},
              {"taken_bytes", p_.smcd_memory.taken()},
              {"memory_bytes", p_.smcd_memory.limit()}}},
            {"engine",
             {{"spin_us", p_.engines.longest_spin().count()},
              {"threads", p_.engines.count()},
              {"processor_s", std::chrono::duration<double>(p_.engines.processor_time()).count()}}},
            {"bypass", describe(p_.bypass)},
            {"eids", texts(p_.node.ueids)},
            {"seid", p_.node.seid ? p_.node.seid->text() : ""},
            {"cgroups",
             {{"root", p_.cgroups.root()},
              {"known", p_.cgroups.groups().size()},
              {"enrolled", enrolled},
              {"left_out", p_.cgroups.left_out()}}},
            {"kubernetes",
             {{"enabled", p_.pods != nullptr},
              {"problem", p_.pods ? p_.pods->problem() : ""},
              {"pods", p_.pods ? p_.pods->pods().size() : 0},
              {"namespaces", p_.pods ? p_.pods->pods().namespaces() : 0},
              {"lists", p_.pods ? p_.pods->lists() : 0},
              {"changes", p_.pods ? p_.pods->changes() : 0}}},
            {"programs", p_.programs.attached()},
            {"pin_path", p_.config.pin_path},
            {"namespaces", spaces},
            {"roce",
             {{"enabled", p_.config.roce.enabled},
              {"ports", devices()["smcr"].size()},
              {"registered_bytes", p_.smcr_groups.registered()},
              {"memory_bytes", std::uint64_t{p_.config.roce.memory_mib} << 20}}},
            {"groups", link_groups()},
            {"totals", totals},
            {"traffic", traffic},
            {"handshakes", durations},
            {"maps", maps},
            {"live", live_by_path()},
            {"probe", describe(p_.verdict)},
            {"decisions", counters},
            {"limits",
             {{"connections", p_.config.max_connections},
              {"handshakes", p_.config.max_handshakes},
              {"namespace_percent", p_.config.namespace_share},
              {"cgroup_percent", p_.config.cgroup_share}}}};
}

json Introspection::overview() const {
    struct Sum {
        std::map<Path, std::size_t> counts;
        std::uint64_t sent = 0, received = 0;
    };
    std::map<std::string, Sum> sums;
    for (const auto& [id, c] : p_.connections.all()) {
        const auto group = p_.cgroups.groups().find(c->cgroup);
        const bool known = group != p_.cgroups.groups().end();
        Sum& sum = sums[!known ? "unknown" : group->second.pod.empty() ? group->second.path : group->second.pod];
        sum.counts[c->path]++;
        sum.sent += c->stats->bytes_sent;
        sum.received += c->stats->bytes_received;
    }
    json applications = json::array();
    for (auto& [who, sum] : sums) {
        applications.push_back({{"name", who},
                                {"smcd", sum.counts[Path::kSmcD]},
                                {"smcr", sum.counts[Path::kSmcR]},
                                {"fallback", sum.counts[Path::kFallback]},
                                {"sent", sum.sent},
                                {"received", sum.received}});
    }
    json all = status();
    all["applications"] = std::move(applications);
    return all;
}

// The agent's own; those that were tuned or are bypassed are the kernel's.
json Introspection::live_by_path() const {
    json counts = json::object();
    for (const Path path : {Path::kHandshake, Path::kSmcD, Path::kSmcR, Path::kFallback}) {
        counts[name(path)] = 0;
    }
    for (const auto& [id, c] : p_.connections.all()) {
        counts[name(c->path)] = counts[name(c->path)].get<int>() + 1;
    }
    return counts;
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
                        {"version", group->key().version},
                        {"release", peer.release},
                        {"peer_id", text(peer.id)},
                        {"host_name", peer.host_name},
                        {"peer_os", clc::text(peer.os)},
                        {"direct", peer.link_type == clc::LinkType::kDirect},
                        {"eid", group->key().eid.text()},
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
        json gids = json::array();
        for (const roce::PortGid& gid : port.gids) {
            gids.push_back(gid.gid.text());
        }
        std::size_t links = 0;
        for (const group::SmcrGroup* group : p_.smcr_groups.groups().all()) {
            for (const auto& [number, link] : group->links().all()) {
                links += link.port.device == port.device && link.port.number == port.number ? 1 : 0;
            }
        }
        smcr.push_back({{"net_device", port.gids.empty() ? "" : port.gids.front().net_device},
                        {"device", port.device},
                        {"port", port.number},
                        {"state", port.active ? "ACTIVE" : "INACTIVE"},
                        {"pci_id", pci_id(port.device)},
                        {"mtu", clc::bytes_of(port.mtu)},
                        {"gids", gids},
                        {"links", links}});
    }
    const json smcd = json::array({{{"provider", p_.fabric.provider()},
                                    {"chid", text(p_.node.chid)},
                                    {"gid", p_.node.gid.text()},
                                    {"groups", p_.smcd_groups.all().size()},
                                    {"dmbs", p_.fabric.registered()}}});
    return {{"smcr", smcr}, {"smcd", smcd}, {"refused", p_.roce_devices.refused()}};
}

// The link that it sends on now, which need not be the one that it began on.
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
    if (ended) {
        for (const auto& c : p_.connections.ended()) {
            list.push_back(describe(*c));
        }
    } else {
        list = own_connections();
        std::set<std::uint64_t> bypassed;
        if (p_.bypass != nullptr) {
            for (const auto& member : p_.bypass->members(kMostTuned)) {
                list.push_back(describe(member));
                bypassed.insert(member.cookie);
            }
        }
        for (const auto& socket : p_.programs.tuned(kMostTuned)) {
            if (!bypassed.contains(socket.cookie)) {
                list.push_back(describe(socket));
            }
        }
    }
    return {{"connections", std::move(list)}};
}

}  // namespace smc
