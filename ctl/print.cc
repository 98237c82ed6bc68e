// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ctl/print.h"

#include "ctl/table.h"

#include <cstdio>
#include <nlohmann/json.hpp>

namespace smc::ctl {

using nlohmann::json;

std::string bytes(const json& value) {
    const double n = value.get<double>();
    const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double scaled = n;
    int unit = 0;
    while (scaled >= 1024 && unit < 4) {
        scaled /= 1024;
        unit++;
    }
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, unit == 0 ? "%.0f %s" : "%.1f %s", scaled, units[unit]);
    return buffer;
}

json fabrics_of(const json& ism) {
    json all = ism.value("others", json::array());  // an older agent has none
    if (!ism.value("provider", std::string()).empty()) {
        all.insert(all.begin(), ism);
    }
    return all;
}

namespace {

std::string join(const json& list) {
    std::string text;
    for (const auto& item : list) {
        text += (text.empty() ? "" : " ") + word(item);
    }
    return text.empty() ? "-" : text;
}

std::string fixed(const json& value) {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, "%.2f", value.get<double>());
    return buffer;
}

std::string seconds(const json& value) {
    const auto s = static_cast<long>(value.get<double>());
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    return buffer;
}

std::string reason(const json& r) {
    const auto name = r.at("name").get<std::string>();
    return name == "none" ? "-" : name + " (" + r.at("code").get<std::string>() + ")";
}

std::string names_of(const json& programs) {
    std::string names;
    for (const auto& one : programs) {
        names += (names.empty() ? "" : " ") + word(one.at("program"));
    }
    return names;
}

Row connection_row(const json& c) {
    return {word(c.at("id")),      word(c.at("role")),   word(c.at("path")),        word(c.at("state")),
            word(c.at("client")),  word(c.at("server")), bytes(c.at("bytes_sent")), bytes(c.at("bytes_received")),
            reason(c.at("reason"))};
}

void print_agent(std::ostream& out, const json& s) {
    const auto& agent = s.at("agent");
    const auto& ism = s.at("ism");
    std::string fabrics;
    for (const auto& fabric : fabrics_of(ism)) {
        fabrics += (fabrics.empty() ? "" : "; ") + word(fabric.at("provider")) + ", CHID " + word(fabric.at("chid")) +
                   ", GID " + word(fabric.at("gid"));
    }
    print_table(
        out,
        {{"Agent", "smc-agent " + word(agent.at("version")) + ", pid " + word(agent.at("pid")) + ", up " +
                       seconds(agent.at("uptime_s")) +
                       (agent.at("serving").get<bool>()
                            ? ", serving"
                            : ", NOT SERVING, " + word(agent.at("obstacle")) + ": new connections are plain TCP")},
         {"Leaving", agent.at("leaving").empty() ? "none" : join(agent.at("leaving"))},
         {"Host name", word(agent.at("host_name"))},
         {"ISM", fabrics.empty() ? "no fabric (the log says why)" : fabrics},
         {"DMBs", word(ism.at("dmbs")) + " of " + bytes(ism.at("dmb_bytes")) + ", " + word(ism.at("pooled")) +
                      " kept for the next connections; with the peers' " + bytes(ism.at("taken_bytes")) +
                      " of at most " + bytes(ism.at("memory_bytes"))},
         {"RoCE", s.at("roce").at("enabled").get<bool>()
                      ? word(s.at("roce").at("ports")) + " ports, " + bytes(s.at("roce").at("registered_bytes")) +
                            " registered of " + bytes(s.at("roce").at("memory_bytes"))
                      : "off"},
         {"Data path", word(s.at("engine").at("threads")) + " threads, " + fixed(s.at("engine").at("processor_s")) +
                           " s of processor time, spins for at most " + word(s.at("engine").at("spin_us")) + " us, " +
                           word(s.at("engine").value("moved", json(0))) + " connections moved between threads"},
         {"EIDs", join(s.at("eids"))},
         {"cgroups", word(s.at("cgroups").at("enrolled")) + " enrolled of " + word(s.at("cgroups").at("known")) +
                         " below " + word(s.at("cgroups").at("root"))},
         {"Pods", !s.at("kubernetes").at("enabled").get<bool>() ? std::string("not known: kubernetes.api is not set")
                  : word(s.at("kubernetes").at("problem")).empty()
                      ? word(s.at("kubernetes").at("pods")) + " on this node"
                      : word(s.at("kubernetes").at("pods")) +
                            " on this node by the last report: " + word(s.at("kubernetes").at("problem"))},
         {"Programs", join(s.at("programs"))},
         {"", "and smc_lookup, smc_in and smc_out in each namespace below"},
         {"Left out", s.at("left_out").empty() ? std::string("nothing")
                                               : names_of(s.at("left_out")) + ": smcctl probe says what is lost"},
         {"Short-lived", s.at("short_lived") == 0
                             ? std::string("no connections are left to TCP")
                             : "those of " + word(s.at("short_lived")) + " servers or listeners are left to TCP"},
         {"Maps", word(s.at("pin_path"))}});
}

void print_namespaces(std::ostream& out, const json& namespaces) {
    std::vector<Row> rows{{"Inode", "Slot", "IPv4", "IPv6", "Devices"}};
    for (const auto& n : namespaces) {
        rows.push_back({word(n.at("inode")), word(n.at("slot")), n.at("ipv4").get<bool>() ? "yes" : "no",
                        n.at("ipv6").get<bool>() ? "yes" : "no", join(n.at("devices"))});
    }
    print_table(out, rows);
    for (const auto& n : namespaces) {
        for (const auto* family : {"ipv4", "ipv6"}) {
            if (!n.at(family).get<bool>()) {
                out << "Not served: " << word(n.at("inode")) << " " << family << ": "
                    << word(n.at(std::string(family) + "_obstacle")) << "\n";
            }
        }
        if (const std::string limits = n.value("limits", ""); !limits.empty()) {
            out << "Netns " << word(n.at("inode"))
                << ": unless policy.past_limits is true, new connections are plain TCP: " << limits
                << ", which SMC would evade\n";
        }
    }
}

void print_counts(std::ostream& out, const json& s) {
    out << "\nConnections since the start, by path (broken: those over SMC that failed)\n";
    std::vector<Row> rows{{"Path", "Reason", "Count", ""}};
    for (const auto& t : s.at("totals")) {
        rows.push_back({word(t.at("path")), reason(t.at("reason")), word(t.at("count")),
                        t.at("reason").at("name") == "none" ? "" : word(t.at("reason").at("text"))});
    }
    print_table(out, rows);
    out << "\nDecisions of the BPF programs\n";
    rows.clear();
    for (const auto& [name, count] : s.at("decisions").items()) {
        if (count.get<std::uint64_t>() != 0) {
            rows.push_back({name, word(count)});
        }
    }
    print_table(out, rows);
}

}  // namespace

void print_connections(std::ostream& out, const json& list) {
    std::vector<Row> rows{{"Id", "Role", "Path", "State", "Client", "Server", "Sent", "Received", "Reason"}};
    for (const auto& c : list) {
        rows.push_back(connection_row(c));
    }
    print_table(out, rows);
}

void print_status(std::ostream& out, const json& s) {
    print_agent(out, s);
    out << "\nNamespaces\n";
    print_namespaces(out, s.at("namespaces"));
    out << "\n";
    print_link_groups(out, s.at("groups"), {});
    print_counts(out, s);
    out << "\nConnections now (" << word(s.at("agent").at("live")) << ", at most "
        << word(s.at("limits").at("connections")) << ")\n";
    if (s.contains("connections")) {
        print_connections(out, s.at("connections"));
    } else {
        out << "Only root and the agent's user may see them\n";
    }
}

void print_explanation(std::ostream& out, const json& e) {
    const bool steered = e.at("steered").get<bool>();
    out << word(e.at("address")) << ": a new connection " << (steered ? "is offered SMC" : "is plain TCP") << "\n";
    out << "  cgroup " << word(e.at("cgroup"));
    if (!e.at("rule").is_null()) {
        out << ", decided by "
            << (e.at("rule") == "default" ? std::string("the default") : "rule \"" + word(e.at("rule")) + "\"") << ": "
            << (e.at("allowed").get<bool>() ? "allow" : "deny");
    }
    out << "\n";
    for (const auto& obstacle : e.at("obstacles")) {
        out << "  in the way: " << word(obstacle) << "\n";
    }
    if (steered) {
        for (const auto& exception : e.at("unless")) {
            out << "  unless " << word(exception) << "\n";
        }
    }
    if (!e.at("recent").empty()) {
        out << "Connections to it that the agent remembers\n";
        print_connections(out, e.at("recent"));
    }
}

}  // namespace smc::ctl
