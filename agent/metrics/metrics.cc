// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/metrics/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "agent/metrics/process.h"
#include "os/kernel_smc.h"

namespace smc {

namespace {

using nlohmann::json;
using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

class Families {
 public:
    void gauge(const char* name, const char* help, double value, const Labels& labels = {}) {
        add(name, help, MetricType::Gauge, labels).gauge.value = value;
    }
    void counter(const char* name, const char* help, double value, const Labels& labels = {}) {
        add(name, help, MetricType::Counter, labels).counter.value = value;
    }
    ClientMetric::Histogram& histogram(const char* name, const char* help, const Labels& labels) {
        return add(name, help, MetricType::Histogram, labels).histogram;
    }
    [[nodiscard]] std::string text() const {
        std::ostringstream out;
        prometheus::TextSerializer().Serialize(out, all_);
        return out.str();
    }

 private:
    // Metrics of one name must be added one after the other.
    ClientMetric& add(const char* name, const char* help, MetricType type, const Labels& labels) {
        if (all_.empty() || all_.back().name != name) {
            all_.push_back({name, help, type, {}});
        }
        ClientMetric metric;
        metric.label = labels;
        all_.back().metric.push_back(std::move(metric));
        return all_.back().metric.back();
    }

    std::vector<MetricFamily> all_;
};

double number(const json& value) {
    return value.is_boolean() ? (value.get<bool>() ? 1 : 0) : value.get<double>();
}

std::string text(const json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
}

// A metric that is a single number of the status.
struct Plain {
    const char* name;
    const char* help;
    MetricType type;
    const char* pointer;
};
constexpr auto kGauge = MetricType::Gauge;
constexpr auto kCounter = MetricType::Counter;
constexpr Plain kPlain[] = {
    {"smc_agent_serving", "1: new connections may be accelerated.", kGauge, "/agent/serving"},
    {"smc_agent_connections_limit", "limits.connections, as the system allows it.", kGauge, "/limits/connections"},
    {"smc_agent_dmbs", "DMBs that this agent has registered.", kGauge, "/ism/dmbs"},
    {"smc_agent_dmbs_pooled", "DMBs, own and peers', kept for the next connections.", kGauge, "/ism/pooled"},
    {"smc_agent_dmb_bytes", "Memory of DMBs, own and attached.", kGauge, "/ism/taken_bytes"},
    {"smc_agent_dmb_limit_bytes", "ism.memory_mib, as the control group allows it.", kGauge, "/ism/memory_bytes"},
    {"smc_agent_rmb_bytes", "Memory registered with RDMA devices.", kGauge, "/roce/registered_bytes"},
    {"smc_agent_rmb_limit_bytes", "roce.memory_mib, as the control group allows it.", kGauge, "/roce/memory_bytes"},
    {"smc_agent_roce_ports", "Ports of RoCE devices that can be used.", kGauge, "/roce/ports"},
    {"smc_agent_cgroups", "Control groups below cgroup.root.", kGauge, "/cgroups/known"},
    {"smc_agent_cgroups_enrolled", "Control groups that some rule matches; all if policy.default is allow.", kGauge,
     "/cgroups/enrolled"},
    {"smc_agent_cgroups_left_out", "Control groups for which the BPF map has no free entry.", kGauge,
     "/cgroups/left_out"},
    {"smc_agent_short_lived", "Servers and listeners whose connections are left to TCP, as they end too early.", kGauge,
     "/short_lived"},
    {"smc_agent_kubernetes_pods", "Pods of this node that the API server has told of.", kGauge, "/kubernetes/pods"},
    {"smc_agent_kubernetes_lists_total", "Complete lists that the API server has sent.", kCounter, "/kubernetes/lists"},
    {"smc_agent_log_lines_dropped_total", "Lines of the log that were dropped because nobody read them.", kCounter,
     "/agent/log_lines_dropped"},
    {"smc_agent_engine_threads", "Threads of the data path.", kGauge, "/engine/threads"},
    {"smc_agent_engine_cpu_seconds_total", "Processor time of the data path.", kCounter, "/engine/processor_s"},
    {"smc_agent_engine_moves_total", "Connections that moved to another thread of the data path.", kCounter,
     "/engine/moved"},
};

void add_connections(Families& to, const json& status) {
    for (const auto& [path, count] : status["live"].items()) {
        to.gauge("smc_agent_connections", "Connections in the agent now.", number(count), {{"path", path}});
    }
    // Every path is exported from the start, as 0: rate() does not count the first value of a series.
    for (const char* path : {"smcd", "smcr", "bypass"}) {
        double count = 0;
        for (const auto& total : status["totals"]) {
            count += total["path"] == path ? number(total["count"]) : 0;
        }
        to.counter("smc_agent_connections_total",
                   "Connections that were accelerated, by path; for bypass, sockets: two for each connection.", count,
                   {{"path", path}});
    }
    const auto by_reason = [&](const char* path, const char* name, const char* help) {
        for (const auto& total : status["totals"]) {
            if (total["path"] == path) {
                to.counter(name, help, number(total["count"]),
                           {{"code", text(total["reason"]["code"])}, {"reason", text(total["reason"]["name"])}});
            }
        }
    };
    by_reason("fallback", "smc_agent_fallbacks_total", "Connections that went back to TCP, by reason.");
    by_reason("refused", "smc_agent_refused_total",
              "Connections that were not made, by reason: one of the applications saw an error, or had gone before.");
    by_reason(
        "broken", "smc_agent_broken_total",
        "Connections over SMC that failed, by reason. Not those that an application or the peer's agent reset, or "
        "that TCP would have ended, too, nor those that this agent resets when it stops.");
    for (const auto& [direction, name, help] :
         {std::tuple{"sent", "smc_agent_sent_bytes_total", "Bytes that applications sent, by path."},
          std::tuple{"received", "smc_agent_received_bytes_total", "Bytes that applications were given, by path."}}) {
        for (const auto& traffic : status["traffic"]) {
            to.counter(name, help, number(traffic[direction]), {{"path", text(traffic["path"])}});
        }
    }
    for (const auto& one : status["handshakes"]) {
        auto& histogram = to.histogram("smc_agent_handshake_seconds",
                                       "Time from when the agent took a connection until its path was decided.",
                                       {{"path", text(one["path"])}});
        for (std::size_t i = 0; i < one["counts"].size(); i++) {
            histogram.sample_count += one["counts"][i].get<std::uint64_t>();
            if (i < one["bounds_s"].size()) {
                histogram.bucket.push_back({histogram.sample_count, one["bounds_s"][i].get<double>()});
            }
        }
        histogram.bucket.push_back({histogram.sample_count, std::numeric_limits<double>::infinity()});
        histogram.sample_sum = number(one["sum_s"]);
    }
    for (const auto& [decision, count] : status["decisions"].items()) {
        to.counter("smc_agent_decisions_total", "Decisions of the BPF programs.", number(count),
                   {{"decision", decision}});
    }
}

void add_groups(Families& to, const json& groups) {
    for (const char* kind : {"smcd", "smcr"}) {
        to.gauge("smc_agent_link_groups", "Link groups.", static_cast<double>(groups[kind].size()), {{"mode", kind}});
    }
    double degraded = 0;
    for (const auto& group : groups["smcr"]) {
        degraded += number(group["degraded"]);
    }
    to.gauge("smc_agent_link_groups_degraded", "SMC-R link groups that have lost their second link.", degraded);
    std::map<std::array<std::string, 3>, double> links;
    for (const auto& group : groups["smcr"]) {
        for (const auto& link : group["links"]) {
            links[{text(link["device"]), text(link["port"]), text(link["state"])}]++;
        }
    }
    for (const auto& [of, count] : links) {
        to.gauge("smc_agent_links", "Links of SMC-R link groups, by port and state.", count,
                 {{"ibdev", of[0]}, {"port", of[1]}, {"state", of[2]}});
    }
}

// Counters of the agent's own network namespace: net/smc counts each namespace separately.
void add_kernel(Families& to, const KernelSmc& kernel) {
    const std::pair<const char*, const KernelSmc::Mode&> modes[] = {{"smcd", kernel.smcd}, {"smcr", kernel.smcr}};
    for (const auto& [mode, counts] : modes) {
        for (const int version : {1, 2}) {
            for (const bool server : {false, true}) {
                to.counter(
                    "smc_agent_kernel_connections_total", "Connections over the kernel's own SMC.",
                    static_cast<double>((server ? counts.server : counts.client)[version - 1]),
                    {{"mode", mode}, {"version", std::to_string(version)}, {"role", server ? "server" : "client"}});
            }
        }
    }
    for (const auto& [mode, counts] : modes) {
        to.counter("smc_agent_kernel_sent_bytes_total", "Bytes sent over the kernel's own SMC.",
                   static_cast<double>(counts.sent), {{"mode", mode}});
    }
    for (const auto& [mode, counts] : modes) {
        to.counter("smc_agent_kernel_received_bytes_total", "Bytes received over the kernel's own SMC.",
                   static_cast<double>(counts.received), {{"mode", mode}});
    }
    const char* errors = "smc_agent_kernel_handshake_errors_total";
    const char* help = "Handshakes of the kernel's own SMC that failed.";
    to.counter(errors, help, static_cast<double>(kernel.client_errors), {{"role", "client"}});
    to.counter(errors, help, static_cast<double>(kernel.server_errors), {{"role", "server"}});
}

void add_bypass(Families& to, const json& status) {
    const json& bypass = status["bypass"];
    if (bypass.value("available", false)) {
        for (const auto& [state, count] : bypass["sockets"].items()) {
            to.gauge("smc_agent_bypass_sockets", "Sockets within this node, by what the bypass does with them.",
                     number(count), {{"state", state}});
        }
        to.gauge("smc_agent_bypass_redirected_bytes", "Bytes that present sockets have sent past TCP.",
                 number(bypass["redirected_bytes"]));
        to.gauge("smc_agent_bypass_backlog_bytes", "Unread bytes, up to the last one that went past TCP.",
                 number(bypass["backlog_bytes"]));
        to.gauge("smc_agent_bypass_namespaces_held_up",
                 "Network namespaces in which no socket joins: a program holds the lock of a socket there.",
                 number(bypass["namespaces_held_up"]));
    }
    const json& probe = status["probe"];
    to.gauge("smc_agent_bypass_automatic", "1: rules that say auto have the bypass on this kernel; 0: they do not.",
             number(probe.value("automatic", false)));
    for (const auto& finding : probe.value("findings", json::array())) {
        to.gauge(
            "smc_agent_kernel_probe",
            "1: as with TCP; 0: different, but no application sees it; -1: different, and an application might see it.",
            text(finding["difference"]).empty() ? 1
            : text(finding["excluded"]).empty() ? -1
                                                : 0,
            {{"probe", text(finding["what"])}});
    }
}

void add_programs(Families& to, const json& status) {
    for (const auto& one : status["left_out"]) {
        to.gauge("smc_agent_program_left_out",
                 "1: this kernel has refused a BPF program; smcctl probe says what is lost.", 1,
                 {{"program", text(one["program"])}, {"hook", text(one["hook"])}});
    }
}

void add_served(Families& to, const json& status) {
    for (const char* family : {"ipv4", "ipv6"}) {
        double served = 0, other = 0;
        for (const auto& netns : status["namespaces"]) {
            (netns[family].get<bool>() ? served : other) += 1;
        }
        to.gauge("smc_agent_namespaces", "Network namespaces, by whether they are served.", served,
                 {{"family", family}, {"served", "yes"}});
        to.gauge("smc_agent_namespaces", "", other, {{"family", family}, {"served", "no"}});
    }
    for (const auto& [key, name, help] :
         {std::tuple{"entries", "smc_agent_map_entries", "Entries of the BPF maps that can fill up."},
          std::tuple{"max_entries", "smc_agent_map_max_entries", "Maximum entries of these BPF maps."}}) {
        for (const auto& map : status["maps"]) {
            to.gauge(name, help, number(map[key]), {{"map", text(map["map"])}});
        }
    }
}

}  // namespace

std::string metrics(const json& status) {
    Families all;
    all.gauge("smc_agent_build_info", "Always 1; the label has the version.", 1,
              {{"version", text(status["agent"]["version"])}});
    for (const Plain& one : kPlain) {
        const double value = number(status.at(json::json_pointer(one.pointer)));
        one.type == kCounter ? all.counter(one.name, one.help, value) : all.gauge(one.name, one.help, value);
    }
    all.gauge("smc_agent_kubernetes_up", "0: kubernetes.api is set, but the API server does not report pods.",
              text(status["kubernetes"]["problem"]).empty() ? 1 : 0);
    all.gauge("smc_agent_leaving_agents", "Agents before this one that still have connections.",
              static_cast<double>(status["agent"]["leaving"].size()));
    all.gauge("smc_agent_draining", "1: new connections are plain TCP until smcctl drain --end.",
              number(status["agent"]["draining"]));
    add_connections(all, status);
    add_groups(all, status["groups"]);
    add_bypass(all, status);
    add_programs(all, status);
    if (const auto kernel = kernel_smc()) {
        add_kernel(all, *kernel);
    }
    add_served(all, status);
    const ProcessUsage usage = process_usage();
    all.counter("process_cpu_seconds_total", "Processor time of the agent, all threads.", usage.processor_s);
    all.gauge("process_resident_memory_bytes", "Resident memory of the agent.", usage.resident_bytes);
    all.gauge("process_open_fds", "File descriptors that the agent has open.", usage.descriptors);
    all.gauge("process_max_fds", "File descriptors that the agent may have open.", usage.most_descriptors);
    all.gauge("process_start_time_seconds", "Start time of the agent, in seconds since 1970.", usage.start_s);
    return all.text();
}

}  // namespace smc
