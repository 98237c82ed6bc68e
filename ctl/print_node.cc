// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The answers about the node as a whole.
#include <nlohmann/json.hpp>

#include "ctl/print.h"
#include "ctl/table.h"

namespace smc::ctl {

using nlohmann::json;

namespace {

std::string words(const json& list) {
    std::string text;
    for (const auto& one : list) {
        text += (text.empty() ? "" : ", ") + word(one);
    }
    return text.empty() ? "-" : text;
}

}  // namespace

// In the blocks of smcr info and smcd info.
void print_info(std::ostream& out, const json& s) {
    const bool roce = s["roce"]["enabled"].get<bool>() && s["roce"]["ports"] != 0;
    std::string fabrics;
    for (const auto& fabric : fabrics_of(s["ism"])) {
        fabrics += (fabrics.empty() ? "" : "; ") + word(fabric["provider"]) + ", CHID " + word(fabric["chid"]);
    }
    out << "Agent Capabilities\n";
    print_table(out, {{"SMC Version:", "2.1"},
                      {"SMC Hostname:", word(s["agent"]["host_name"])},
                      {"SMC-D Features:", "v2, v2.1"},
                      {"SMC-R Features:", s["roce"]["enabled"].get<bool>() ? "v1, v2, v2.1" : "-"},
                      {"Bypass:", s["bypass"].value("there", false) ? "on" : "off (smcctl probe says why)"}});
    out << "\nHardware Capabilities\n";
    print_table(out, {{"UEIDs:", words(s["eids"])},
                      {"SEID:", word(s["seid"]).empty() ? "n/a" : word(s["seid"])},
                      {"ISM:", fabrics.empty() ? "n/a" : fabrics},
                      {"RoCE:", roce ? word(s["roce"]["ports"]) + " ports" : "n/a"}});
}

void print_stats(std::ostream& out, const json& sums) {
    for (const auto& [key, title] :
         {std::pair{"smcd", "SMC-D"}, std::pair{"smcr", "SMC-R"}, std::pair{"bypass", "Bypass"}}) {
        const json& s = sums[key];
        out << title << " Connections Summary\n";
        print_table(out,
                    {{key == std::string("bypass") ? "  Sockets" : "  SMC connections", word(s["connections"])},
                     {"  Data received (Bytes)", word(s["received_bytes"]) + " (" + bytes(s["received_bytes"]) + ")"},
                     {"  Data transmitted (Bytes)", word(s["sent_bytes"]) + " (" + bytes(s["sent_bytes"]) + ")"}});
        out << "\n";
    }
    for (const auto& [key, title] : {std::pair{"fallbacks", "TCP fallback"}, std::pair{"refused", "Refused"}}) {
        out << title << "\n";
        std::vector<Row> rows;
        for (const auto& [reason, count] : sums[key].items()) {
            if (count != 0) {
                rows.push_back({"  " + reason, word(count)});
            }
        }
        if (rows.empty()) {
            rows.push_back({"  none"});
        }
        print_table(out, rows);
    }
}

// In the columns of smc_pnet; the last column has the local addresses whose connections use a network.
void print_pnet(std::ostream& out, const json& devices) {
    std::vector<Row> rows{{"PNET-ID", "Net-Dev", "IB-Dev", "IB-P", "Networks"}};
    const auto row = [&](const std::string& id, const std::string& networks) {
        for (const auto& d : devices["smcr"]) {
            if (word(d.value("pnet_id", "")) == id) {
                const std::string net = word(d["net_device"]);
                rows.push_back(
                    {id.empty() ? "-" : id, net.empty() ? "n/a" : net, word(d["device"]), word(d["port"]), networks});
            }
        }
    };
    const json pnets = devices.value("pnets", json::array());  // an older agent has none
    for (const auto& pnet : pnets) {
        const std::size_t before = rows.size();
        row(word(pnet["id"]), words(pnet["networks"]));
        if (rows.size() == before) {  // this node has none of its devices
            rows.push_back({word(pnet["id"]), "n/a", "n/a", "n/a", words(pnet["networks"])});
        }
    }
    row("", pnets.empty() ? "all" : "all others");
    print_table(out, rows);
}

void print_dry_run(std::ostream& out, const json& answer) {
    for (const auto& space : answer["namespaces"]) {
        if (space.contains("failed")) {
            out << "Namespace " << word(space["netns"]) << ": its sockets cannot be listed: " << word(space["failed"])
                << "\n\n";
            continue;
        }
        out << "Namespace " << word(space["netns"]) << ": of " << word(space["outbound"]) << " connections made here "
            << word(space["offered"]) << " would be offered SMC; " << word(space["inbound"])
            << " were accepted: their clients' nodes decide\n";
        std::vector<Row> rows{{"Server", "Cgroup", "#Conns", "New ones would be"}};
        for (const auto& server : space["servers"]) {
            rows.push_back({word(server["server"]), word(server.value("cgroup", json(""))), word(server["connections"]),
                            server["offered"].get<bool>() ? "offered SMC" : "plain TCP: " + word(server["obstacle"])});
        }
        print_table(out, rows);
        if (space["left_out"] != 0) {
            out << "and " << word(space["left_out"]) << " more connections\n";
        }
        out << "\n";
    }
    if (answer["namespaces"].empty()) {
        out << "No network namespace is served\n";
    }
}

void print_drain(std::ostream& out, const json& answer) {
    out << (answer["draining"].get<bool>() ? "Draining: new connections are plain TCP" : "Serving") << "; "
        << word(answer["connections"]) << " connections are in the agent";
    if (answer["connections"] != 0 && answer.contains("live")) {  // an older agent does not say
        const auto& live = answer["live"];
        out << ": " << word(live["smcd"]) << " over SMC-D, " << word(live["smcr"]) << " over SMC-R, "
            << word(live["fallback"]) << " over TCP, " << word(live["handshake"]) << " being set up";
    }
    out << "\n";
}

void print_upgrade(std::ostream& out, const json& answer) {
    out << "smc-agent " << word(answer["version"]) << ", pid " << word(answer["pid"]) << ", has taken over from pid "
        << word(answer["before"]) << " after " << word(answer["took_ms"]) << " ms\n";
    for (const auto& agent : answer["leaving"]) {
        out << word(agent["connections"]) << " connections stay with the agent at " << word(agent["socket"])
            << " until they end: " << word(agent["smcd"]) << " over SMC-D, " << word(agent["smcr"]) << " over SMC-R, "
            << word(agent["fallback"]) << " over TCP\n";
    }
}

void print_ueids(std::ostream& out, const json& answer) {
    for (const auto& eid : answer["ueids"]) {
        out << word(eid) << "\n";
    }
}

void print_seid(std::ostream& out, const json& answer) {
    const std::string seid = word(answer["seid"]);
    out << (seid.empty() ? "n/a" : seid) << (answer["enabled"].get<bool>() ? " [enabled]" : " [disabled]") << "\n";
}

}  // namespace smc::ctl
