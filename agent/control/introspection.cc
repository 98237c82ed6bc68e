// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/control/introspection.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "smc_version.h"  // generated: kVersion

namespace smc {

namespace {

using nlohmann::json;

std::string hex(std::uint32_t code) {
    char buffer[12];
    std::snprintf(buffer, sizeof buffer, "0x%08x", code);
    return buffer;
}

json describe(Reason reason) {
    return {{"name", reason_name(reason)},
            {"code", hex(static_cast<std::uint32_t>(reason))},
            {"text", reason_text(reason)}};
}

// "0001:00000a00 c000": wrap count and offset, producer flags and connection state.
std::string cursor(std::uint64_t packed) {
    const cdc::Producer p = cdc::unpack_producer(packed);
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, "%04x:%08x %02x%02x", p.cursor.wrap, p.cursor.count, p.flags, p.state);
    return buffer;
}

// "0000:3b:00.0"; empty for a device that is not on that bus.
std::string pci_id(const std::string& device) {
    std::error_code error;
    const auto target = std::filesystem::read_symlink("/sys/class/infiniband/" + device + "/device", error);
    return error ? "" : target.filename().string();
}

json describe(const Connection& c) {
    json out = {
        {"id", c.id},
        {"role", c.role == Role::kClient ? "client" : "server"},
        {"path", name(c.path)},
        {"reason", describe(c.reason)},
        {"detail", c.detail},
        {"client", c.client.text()},
        {"server", c.server.text()},
        {"netns", c.netns},
        {"pid", c.pid},
        {"age_s", std::chrono::duration<double>(std::chrono::system_clock::now() - c.since).count()},
        {"state", c.stats->state.load()},
        {"bytes_sent", c.stats->bytes_sent.load()},
        {"bytes_received", c.stats->bytes_received.load()},
    };
    if (c.uid) {
        out["uid"] = *c.uid;
    }
    if (c.peer_reason != Reason::kNone) {
        out["peer_reason"] = describe(c.peer_reason);
    }
    if (c.path == Path::kSmcD || c.path == Path::kSmcR) {
        out["cursors"] = {{"rx_producer", cursor(c.stats->rx_producer)},
                          {"rx_consumer", cursor(c.stats->rx_consumer)},
                          {"tx_producer", cursor(c.stats->tx_producer)},
                          {"tx_consumer", cursor(c.stats->tx_consumer)}};
        out["signals"] = c.stats->signals.load();
        out["blocked"] = c.stats->blocked.load();
    }
    if (c.smcr) {
        const SmcrView& r = *c.smcr;
        out["smcr"] = {{"version", r.version},
                       {"role", r.server ? "SERV" : "CLNT"},
                       {"group", r.group_id},
                       {"link_id", text(r.link_id)},
                       {"device", r.device},
                       {"port", r.port},
                       {"net_device", r.net_device},
                       {"gid", r.gid.text()},
                       {"peer_gid", r.peer_gid.text()},
                       {"token", text(r.token)},
                       {"peer_token", text(r.peer_token)},
                       {"rmbe_bytes", r.rmbe_bytes},
                       {"peer_rmbe_bytes", r.peer_rmbe_bytes},
                       {"eid", c.eid.text()}};
    }
    if (c.smcd) {
        const SmcdView& d = *c.smcd;
        out["smcd"] = {{"peer_gid", d.peer_gid.text()},
                       {"token", text(d.token)},
                       {"peer_token", text(d.peer_token)},
                       {"dmb_bytes", d.dmb_bytes},
                       {"peer_dmb_bytes", d.peer_dmb_bytes},
                       {"eid", c.eid.text()},
                       {"group", d.group_id}};
    }
    return out;
}

// The cgroup of a process, as a path below `root`; nullopt if it is elsewhere or gone.
std::optional<std::uint64_t> cgroup_of(int pid, const std::string& mount) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/cgroup");
    for (std::string line; std::getline(file, line);) {
        struct stat status {};
        if (line.starts_with("0::") && ::stat((mount + line.substr(3)).c_str(), &status) == 0) {
            return status.st_ino;
        }
    }
    return std::nullopt;
}

std::uint64_t netns_of(int pid) {
    struct stat status {};
    return ::stat(("/proc/" + std::to_string(pid) + "/ns/net").c_str(), &status) == 0 ? status.st_ino : 0;
}

}  // namespace

json Introspection::answer(const json& request) const {
    const std::string command = request.value("command", "");
    if (command == "status") {
        return status();
    }
    if (command == "connections") {
        return connections(request.value("ended", false));
    }
    if (command == "explain") {
        return explain(request);
    }
    if (command == "linkgroups") {
        return link_groups();
    }
    if (command == "devices") {
        return devices();
    }
    return {{"error", "unknown command \"" + command + "\""}};
}

json Introspection::status() const {
    json spaces = json::array();
    for (const auto& space : p_.namespaces.all()) {
        spaces.push_back({{"inode", space->inode()},
                          {"slot", space->slot()},
                          {"devices", space->devices()},
                          {"ipv4", space->serves(Namespace::kLeg4)},
                          {"ipv6", space->serves(Namespace::kLeg6)}});
    }
    json counters = json::object();
    for (int i = 0; i < SMC_DECISIONS; i++) {
        const auto decision = static_cast<smc_decision>(i);
        counters[bpf::Programs::decision_name(decision)] = p_.programs.counter(decision);
    }
    json totals = json::array();
    for (const auto& [key, count] : p_.connections.totals()) {
        totals.push_back({{"path", name(key.first)}, {"reason", describe(key.second)}, {"count", count}});
    }
    std::size_t enrolled = 0;
    for (const auto& [id, group] : p_.cgroups.groups()) {
        enrolled += group.enrolled ? 1 : 0;
    }
    const auto uptime = std::chrono::steady_clock::now() - started_;
    return {{"agent",
             {{"version", kVersion},
              {"pid", ::getpid()},
              {"uptime_s", std::chrono::duration<double>(uptime).count()},
              {"serving", p_.gateway.has_room()},
              {"host_name", p_.node.host_name}}},
            {"ism",
             {{"provider", p_.fabric.provider()},
              {"directory", p_.config.ism_directory},
              {"gid", p_.node.gid.text()},
              {"chid", text(p_.node.chid)},
              {"dmbs", p_.fabric.registered()},
              {"dmb_bytes", p_.config.dmb_kib * 1024}}},
            {"eids", p_.config.ueids},
            {"cgroups", {{"root", p_.cgroups.root()}, {"known", p_.cgroups.groups().size()}, {"enrolled", enrolled}}},
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
            {"decisions", counters},
            {"connections", connections(false)["connections"]},
            {"limits", {{"connections", p_.config.max_connections}}}};
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
    json smcr = json::array();
    p_.smcr_groups.for_each([&](const group::SmcrGroup& group, const smcr::Devices::Usable& device,
                                const smcr::LinkDriver::Counters& counters) {
        const clc::SmcrPeer& peer = group.peer();
        const json link = {{"net_device", device.gid.net_device},
                           {"state", group.state() == group::SmcrGroup::State::kActive ? "LINK_ACTIVE" : "LINK_ACTIVATING"},
                           {"connections", group.connections()},
                           {"link_uid", text(group.own_link_id())},
                           {"peer_uid", text(group.peer_link_id())},
                           {"device", group.port().device},
                           {"port", group.port().number},
                           {"local_gid", group.own().gid.text()},
                           {"peer_gid", peer.link.gid.text()},
                           {"qpn", text(group.own().qpn)},
                           {"peer_qpn", text(peer.link.qpn)},
                           {"messages_sent", counters.messages_sent.load()},
                           {"messages_received", counters.messages_received.load()},
                           {"bytes_written", counters.bytes_written.load()},
                           {"unknown_tokens", counters.unknown_tokens.load()},
                           {"stale_messages", counters.stale.load()},
                           {"queue_full", counters.full.load()}};
        smcr.push_back({{"id", static_cast<std::uint32_t>(group.id())},
                        {"role", group.key().server ? "SERV" : "CLNT"},
                        {"type", group.settled() ? "SINGLE" : "NONE"},
                        {"version", group.key().version},
                        {"release", peer.release},
                        {"peer_id", text(peer.id)},
                        {"host_name", peer.host_name},
                        {"peer_os", clc::text(peer.os)},
                        {"direct", peer.link_type == clc::LinkType::kDirect},
                        {"eid", group.key().eid.text()},
                        {"connections", group.connections()},
                        {"max_connections", group.max_connections()},
                        {"rmbs", group.rmbs()},
                        {"rmbe_bytes", p_.config.roce.rmbe_kib * 1024},
                        {"eye_catchers", group.eye_catchers()},
                        {"links", json::array({link})}});
    });
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
            links += group->port().device == port.device && group->port().number == port.number ? 1 : 0;
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

json Introspection::connections(bool ended) const {
    json list = json::array();
    if (ended) {
        for (const auto& c : p_.connections.ended()) {
            list.push_back(describe(*c));
        }
    } else {
        for (const auto& [id, c] : p_.connections.all()) {
            list.push_back(describe(*c));
        }
    }
    return {{"connections", list}};
}

// The same questions in the same order as bpf/smc_steer.h asks them.
json Introspection::explain(const json& request) const {
    const auto remote = Endpoint::parse(request.value("address", ""));
    if (!remote) {
        return {{"error", "\"" + request.value("address", "") + "\" is not ADDR:PORT or [ADDR]:PORT"}};
    }
    const int pid = request.value("pid", 0);
    json obstacles = json::array();
    std::uint64_t rules = ~0ULL;
    std::string cgroup = "any";
    std::uint64_t inode = 0;
    if (pid != 0) {
        inode = netns_of(pid);
        if (inode == 0) {
            return {{"error", "looking at process " + std::to_string(pid) + ": " + std::strerror(errno)}};
        }
        const auto mount = find_cgroup_mount();
        const auto id = mount ? cgroup_of(pid, *mount) : std::nullopt;
        const auto it = id ? p_.cgroups.groups().find(*id) : p_.cgroups.groups().end();
        if (it == p_.cgroups.groups().end()) {
            rules = 0;
            cgroup = "not below " + p_.cgroups.root();
            obstacles.push_back("the process's cgroup is not below " + p_.cgroups.root());
        } else {
            rules = it->second.rules;
            cgroup = it->second.path;
            if (!it->second.enrolled) {
                obstacles.push_back("the process's cgroup " + cgroup + " is not enrolled");
            }
        }
        if (p_.namespaces.by_inode(inode) == nullptr) {
            obstacles.push_back("the process's network namespace " + std::to_string(inode) + " is not served (yet)");
        }
    }
    const auto decision = p_.policy.decide(rules, *remote, remote->port, SMC_OUTBOUND);
    if (!decision.allow) {
        obstacles.push_back(decision.rule == "default" ? "no rule matches, and the default is to deny"
                                                       : "rule \"" + decision.rule + "\" denies it");
    }
    if (!p_.gateway.has_room()) {
        obstacles.push_back("the agent has as many connections as it may have");
    }
    for (const auto& space : p_.namespaces.all()) {
        if (inode != 0 && space->inode() != inode) {
            continue;
        }
        if (const auto entry = p_.programs.incapable(space->cookie(), *remote)) {
            obstacles.push_back("in the negative cache of netns " + std::to_string(space->inode()) + ": " +
                                std::string(reason_text(static_cast<Reason>(entry->reason))));
        }
    }
    json recent = json::array();
    for (const auto& c : p_.connections.ended()) {
        if (c->server == *remote) {
            recent.push_back(describe(*c));
        }
    }
    for (const auto& [id, c] : p_.connections.all()) {
        if (c->server == *remote) {
            recent.push_back(describe(*c));
        }
    }
    return {
        {"address", remote->text()},    {"cgroup", cgroup},       {"rule", decision.rule}, {"allowed", decision.allow},
        {"steered", obstacles.empty()}, {"obstacles", obstacles}, {"recent", recent}};
}

}  // namespace smc
