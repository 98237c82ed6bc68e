// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The answer for `smcctl status`, the metrics and the page.
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "agent/control/bypass_view.h"
#include "agent/control/describe.h"
#include "agent/control/introspection.h"
#include "agent/control/program_view.h"
#include "agent/log/log.h"
#include "agent/upgrade/instance.h"
#include "os/clock.h"
#include "smc_version.h"  // generated: kVersion

namespace smc {

using nlohmann::json;

namespace {

json texts(const std::vector<Eid>& eids) {
    json list = json::array();
    for (const Eid& eid : eids) {
        list.push_back(eid.text());
    }
    return list;
}

}  // namespace

// Counters since the start: connections, bytes, durations and decisions.
json Introspection::sums() const {
    json counters = json::object();
    for (int i = 0; i < SMC_DECISIONS; i++) {
        const auto decision = static_cast<smc_decision>(i);
        counters[bpf::Programs::decision_name(decision)] = p_.programs.counter(decision);
    }
    json traffic = json::array();
    for (const auto& [path, sum] : p_.connections.traffic()) {
        traffic.push_back({{"path", name(path)}, {"sent", sum.sent}, {"received", sum.received}});
    }
    json totals = json::array();
    for (const auto& [key, count] : p_.connections.totals()) {
        totals.push_back({{"path", name(key.first)}, {"reason", describe(key.second)}, {"count", count}});
    }
    if (p_.bypass != nullptr) {
        const auto& [members, bytes] = p_.bypass->totals();
        traffic.push_back({{"path", "bypass"}, {"sent", bytes}, {"received", bytes}});
        totals.push_back({{"path", "bypass"}, {"reason", describe(Reason::kNone)}, {"count", members}});
    }
    json durations = json::array();
    for (const auto& [path, histogram] : p_.connections.durations()) {
        durations.push_back({{"path", name(path)},
                             {"bounds_s", Durations::kBounds},
                             {"counts", histogram.counts()},
                             {"sum_s", histogram.sum()}});
    }
    return {{"totals", std::move(totals)},
            {"traffic", std::move(traffic)},
            {"handshakes", std::move(durations)},
            {"decisions", std::move(counters)},
            {"live", live_by_path(p_.connections)}};
}

// The things served: namespaces, cgroups and pods, and how full the BPF maps are.
json Introspection::served() const {
    json namespaces = json::array();
    for (const auto& netns : p_.namespaces.all()) {
        namespaces.push_back({{"inode", netns->inode()},
                              {"slot", netns->slot()},
                              {"devices", netns->devices()},
                              {"ipv4", netns->obstacle(bpf::Hooks::kIpv4).empty()},
                              {"ipv6", netns->obstacle(bpf::Hooks::kIpv6).empty()},
                              {"ipv4_obstacle", netns->obstacle(bpf::Hooks::kIpv4)},
                              {"ipv6_obstacle", netns->obstacle(bpf::Hooks::kIpv6)},
                              {"limits", netns->limits()}});
    }
    json maps = json::array(
        {{{"map", "smc_cgroups"}, {"entries", p_.cgroups.groups().size()}, {"max_entries", SMC_MAX_CGROUPS}},
         {{"map", "smc_netns"}, {"entries", p_.namespaces.all().size()}, {"max_entries", SMC_MAX_NETNS}}});
    for (const auto& one : p_.programs.fill()) {
        maps.push_back({{"map", one.map}, {"entries", one.entries}, {"max_entries", one.max_entries}});
    }
    std::size_t enrolled = 0;
    for (const auto& [id, group] : p_.cgroups.groups()) {
        enrolled += group.enrolled ? 1 : 0;
    }
    return {{"namespaces", std::move(namespaces)},
            {"maps", std::move(maps)},
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
              {"changes", p_.pods ? p_.pods->changes() : 0}}}};
}

// The first fabric, and what all fabrics have in common; the other ones are in "others". Without a fabric, "provider"
// is empty.
json Introspection::ism() const {
    json fabrics = json::array();
    for (const auto& fabric : p_.fabrics.all()) {
        fabrics.push_back(
            {{"provider", fabric->provider()}, {"gid", fabric->gid().text()}, {"chid", text(fabric->chid())}});
    }
    json all = fabrics.empty() ? json{{"provider", ""}, {"gid", ""}, {"chid", ""}} : fabrics.front();
    if (!fabrics.empty()) {
        fabrics.erase(fabrics.begin());
    }
    all.update({{"directory", p_.config.ism.directory},
                {"others", std::move(fabrics)},
                {"dmbs", p_.fabrics.registered()},
                {"dmb_bytes", p_.config.dmb_kib * 1024},
                {"pooled", p_.smcd_pool.kept()},
                {"taken_bytes", p_.smcd_memory.taken()},
                {"memory_bytes", p_.smcd_memory.limit()}});
    return all;
}

json Introspection::status() const {
    const std::string obstacle = p_.obstacle();
    const auto uptime = os::now() - started_;
    json all = {{"agent",
                 {{"version", kVersion},
                  {"pid", ::getpid()},
                  {"uptime_s", std::chrono::duration<double>(uptime).count()},
                  {"serving", obstacle.empty()},
                  {"obstacle", obstacle},
                  {"ready", p_.not_ready().empty()},
                  {"draining", p_.drain.on},
                  {"leaving", upgrade::Instance::leaving(p_.config.control_socket)},
                  {"live", p_.connections.live()},
                  {"log_lines_dropped", log_lines_dropped()},
                  {"host_name", p_.node.host_name}}},
                {"ism", ism()},
                {"engine",
                 {{"spin_us", p_.engines.longest_spin().count()},
                  {"threads", p_.engines.count()},
                  {"moved", p_.engines.moved()},
                  {"processor_s", std::chrono::duration<double>(p_.engines.processor_time()).count()}}},
                {"bypass", describe(p_.bypass.get(), p_.rounds.get())},
                {"eids", texts(p_.node.ueids)},
                {"seid", p_.node.seid ? p_.node.seid->text() : ""},
                {"programs", p_.programs.attached()},
                {"left_out", left_out(p_)},
                {"short_lived", p_.programs.kinds_left_to_tcp().size()},
                {"pin_path", p_.config.pin_path},
                {"roce",
                 {{"enabled", p_.config.roce.enabled},
                  {"versions", p_.config.roce.versions},
                  {"ports", devices()["smcr"].size()},
                  {"registered_bytes", p_.smcr_groups.registered()},
                  {"memory_bytes", std::uint64_t{p_.config.roce.memory_mib} << 20}}},
                {"groups", link_groups()},
                {"probe", describe(p_.verdict)},
                {"limits",
                 {{"connections", p_.config.max_connections},
                  {"handshakes", p_.config.max_handshakes},
                  {"namespace_percent", p_.config.namespace_share},
                  {"cgroup_percent", p_.config.cgroup_share}}}};
    all.update(sums());
    all.update(served());
    return all;
}

json Introspection::overview() const {
    struct Sum {
        std::map<Path, std::size_t> counts;
        std::size_t bypassed = 0;
        std::uint64_t sent = 0, received = 0;
    };
    std::map<std::string, Sum> sums;
    const auto sum_of = [&](std::uint64_t cgroup) -> Sum& {
        const auto group = p_.cgroups.groups().find(cgroup);
        const bool known = group != p_.cgroups.groups().end();
        return sums[!known ? "unknown" : group->second.pod.empty() ? group->second.path : group->second.pod];
    };
    for (const auto& [id, c] : p_.connections.all()) {
        Sum& sum = sum_of(c->cgroup);
        sum.counts[c->path]++;
        sum.sent += c->stats->bytes_sent;
        sum.received += c->stats->bytes_received;
    }
    if (p_.bypass != nullptr) {
        for (const auto& [id, one] : p_.bypass->cgroups()) {
            Sum& sum = sum_of(id);
            sum.bypassed += one.members;
            sum.sent += one.sent;
            sum.received += one.came;
        }
    }
    json applications = json::array();
    for (auto& [who, sum] : sums) {
        applications.push_back({{"name", who},
                                {"smcd", sum.counts[Path::kSmcD]},
                                {"smcr", sum.counts[Path::kSmcR]},
                                {"fallback", sum.counts[Path::kFallback]},
                                {"bypass", sum.bypassed},
                                {"sent", sum.sent},
                                {"received", sum.received}});
    }
    json all = status();
    all["applications"] = std::move(applications);
    return all;
}

}  // namespace smc
