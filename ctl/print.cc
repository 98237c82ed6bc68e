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
    const auto name = r["name"].get<std::string>();
    return name == "none" ? "-" : name + " (" + r["code"].get<std::string>() + ")";
}

std::string names_of(const json& programs) {
    std::string names;
    for (const auto& one : programs) {
        names += (names.empty() ? "" : " ") + word(one["program"]);
    }
    return names;
}

Row connection_row(const json& c) {
    return {word(c["id"]),      word(c["role"]),   word(c["path"]),        word(c["state"]),
            word(c["client"]),  word(c["server"]), bytes(c["bytes_sent"]), bytes(c["bytes_received"]),
            reason(c["reason"])};
}

void print_agent(std::ostream& out, const json& s) {
    const auto& agent = s["agent"];
    const auto& ism = s["ism"];
    std::string fabrics;
    for (const auto& fabric : fabrics_of(ism)) {
        fabrics += (fabrics.empty() ? "" : "; ") + word(fabric["provider"]) + ", CHID " + word(fabric["chid"]) +
                   ", GID " + word(fabric["gid"]);
    }
    print_table(
        out, {{"Agent", "smc-agent " + word(agent["version"]) + ", pid " + word(agent["pid"]) + ", up " +
                            seconds(agent["uptime_s"]) +
                            (agent["serving"].get<bool>()
                                 ? ", serving"
                                 : ", NOT SERVING, " + word(agent["obstacle"]) + ": new connections are plain TCP")},
              {"Leaving", agent["leaving"].empty() ? "none" : join(agent["leaving"])},
              {"Host name", word(agent["host_name"])},
              {"ISM", fabrics.empty() ? "no fabric (the log says why)" : fabrics},
              {"DMBs", word(ism["dmbs"]) + " of " + bytes(ism["dmb_bytes"]) + ", " + word(ism["pooled"]) +
                           " kept for the next connections; with the peers' " + bytes(ism["taken_bytes"]) +
                           " of at most " + bytes(ism["memory_bytes"])},
              {"RoCE", s["roce"]["enabled"].get<bool>()
                           ? word(s["roce"]["ports"]) + " ports, " + bytes(s["roce"]["registered_bytes"]) +
                                 " registered of " + bytes(s["roce"]["memory_bytes"])
                           : "off"},
              {"Data path", word(s["engine"]["threads"]) + " threads, " + fixed(s["engine"]["processor_s"]) +
                                " s of processor time, spins for at most " + word(s["engine"]["spin_us"]) + " us, " +
                                word(s["engine"].value("moved", json(0))) + " connections moved between threads"},
              {"EIDs", join(s["eids"])},
              {"cgroups", word(s["cgroups"]["enrolled"]) + " enrolled of " + word(s["cgroups"]["known"]) + " below " +
                              word(s["cgroups"]["root"])},
              {"Pods",
               !s["kubernetes"]["enabled"].get<bool>() ? std::string("not known: kubernetes.api is not set")
               : word(s["kubernetes"]["problem"]).empty()
                   ? word(s["kubernetes"]["pods"]) + " on this node"
                   : word(s["kubernetes"]["pods"]) + " on this node, as it was: " + word(s["kubernetes"]["problem"])},
              {"Programs", join(s["programs"])},
              {"", "and smc_lookup, smc_in and smc_out in each namespace below"},
              {"Left out", s["left_out"].empty() ? std::string("nothing")
                                                 : names_of(s["left_out"]) + ": smcctl probe says what is lost"},
              {"Short-lived", s["short_lived"] == 0
                                  ? std::string("no connections are left to TCP")
                                  : "those of " + word(s["short_lived"]) + " servers or listeners are left to TCP"},
              {"Maps", word(s["pin_path"])}});
}

void print_namespaces(std::ostream& out, const json& namespaces) {
    std::vector<Row> rows{{"Inode", "Slot", "IPv4", "IPv6", "Devices"}};
    for (const auto& n : namespaces) {
        rows.push_back({word(n["inode"]), word(n["slot"]), n["ipv4"].get<bool>() ? "yes" : "no",
                        n["ipv6"].get<bool>() ? "yes" : "no", join(n["devices"])});
    }
    print_table(out, rows);
    for (const auto& n : namespaces) {
        for (const auto* family : {"ipv4", "ipv6"}) {
            if (!n[family].get<bool>()) {
                out << "Not served: " << word(n["inode"]) << " " << family << ": "
                    << word(n[std::string(family) + "_obstacle"]) << "\n";
            }
        }
        if (const std::string limits = n.value("limits", ""); !limits.empty()) {
            out << "New connections are plain TCP: " << word(n["inode"]) << ": " << limits
                << ", which SMC would evade\n";
        }
    }
}

void print_counts(std::ostream& out, const json& s) {
    out << "\nConnections since the start, by path\n";
    std::vector<Row> rows{{"Path", "Reason", "Count", ""}};
    for (const auto& t : s["totals"]) {
        rows.push_back({word(t["path"]), reason(t["reason"]), word(t["count"]),
                        t["reason"]["name"] == "none" ? "" : word(t["reason"]["text"])});
    }
    print_table(out, rows);
    out << "\nDecisions of the BPF programs\n";
    rows.clear();
    for (const auto& [name, count] : s["decisions"].items()) {
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
    print_namespaces(out, s["namespaces"]);
    out << "\n";
    print_link_groups(out, s["groups"], {});
    print_counts(out, s);
    out << "\nConnections now (" << word(s["agent"]["live"]) << ", at most " << word(s["limits"]["connections"])
        << ")\n";
    if (s.contains("connections")) {
        print_connections(out, s["connections"]);
    } else {
        out << "Only root and the agent's user may see them\n";
    }
}

void print_explanation(std::ostream& out, const json& e) {
    const bool steered = e["steered"].get<bool>();
    out << word(e["address"]) << ": a new connection " << (steered ? "is offered SMC" : "is plain TCP") << "\n";
    out << "  cgroup " << word(e["cgroup"]);
    if (!e["rule"].is_null()) {
        out << ", decided by "
            << (e["rule"] == "default" ? std::string("the default") : "rule \"" + word(e["rule"]) + "\"") << ": "
            << (e["allowed"].get<bool>() ? "allow" : "deny");
    }
    out << "\n";
    for (const auto& obstacle : e["obstacles"]) {
        out << "  in the way: " << word(obstacle) << "\n";
    }
    if (steered) {
        for (const auto& exception : e["unless"]) {
            out << "  unless " << word(exception) << "\n";
        }
    }
    if (!e["recent"].empty()) {
        out << "Connections to it that the agent remembers\n";
        print_connections(out, e["recent"]);
    }
}

}  // namespace smc::ctl
