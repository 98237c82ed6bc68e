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

std::string smcr_features(const json& roce) {
    std::string text;
    for (const auto& version : roce.value("versions", json::array())) {
        text += (text.empty() ? "" : ", ") + std::string(version == 1 ? "v1" : "v2, v2.1");
    }
    return text.empty() || !roce.at("enabled").get<bool>() ? "-" : text;
}

std::string bypass_state(const json& bypass, const json& probe) {
    if (!bypass.value("available", false) || bypass.value("off", false)) {
        return "off (smcctl probe says why)";
    }
    return probe.value("automatic", false) ? "on" : "off for rules that say auto (smcctl probe says why)";
}

}  // namespace

// In the blocks of smcr info and smcd info.
void print_info(std::ostream& out, const json& s) {
    const bool roce = s.at("roce").at("enabled").get<bool>() && s.at("roce").at("ports") != 0;
    std::string fabrics;
    for (const auto& fabric : fabrics_of(s.at("ism"))) {
        fabrics += (fabrics.empty() ? "" : "; ") + word(fabric.at("provider")) + ", CHID " + word(fabric.at("chid"));
    }
    out << "Agent Capabilities\n";
    print_table(out, {{"SMC Version:", "2.1"},
                      {"SMC Hostname:", word(s.at("agent").at("host_name"))},
                      {"SMC-D Features:", "v2, v2.1"},
                      {"SMC-R Features:", smcr_features(s.at("roce"))},
                      {"Bypass:", bypass_state(s.at("bypass"), s.value("probe", json::object()))}});
    out << "\nHardware Capabilities\n";
    print_table(out, {{"UEIDs:", words(s.at("eids"))},
                      {"SEID:", word(s.at("seid")).empty() ? "n/a" : word(s.at("seid"))},
                      {"ISM:", fabrics.empty() ? "n/a" : fabrics},
                      {"RoCE:", roce ? word(s.at("roce").at("ports")) + " ports" : "n/a"}});
}

void print_stats(std::ostream& out, const json& sums) {
    for (const auto& [key, title] :
         {std::pair{"smcd", "SMC-D"}, std::pair{"smcr", "SMC-R"}, std::pair{"bypass", "Bypass"}}) {
        const json& s = sums.at(key);
        out << title << " Connections Summary\n";
        print_table(
            out,
            {{key == std::string("bypass") ? "  Sockets" : "  SMC connections", word(s.at("connections"))},
             {"  Data received (Bytes)", word(s.at("received_bytes")) + " (" + bytes(s.at("received_bytes")) + ")"},
             {"  Data transmitted (Bytes)", word(s.at("sent_bytes")) + " (" + bytes(s.at("sent_bytes")) + ")"}});
        out << "\n";
    }
    for (const auto& [key, title] :
         {std::pair{"fallbacks", "TCP fallback"}, std::pair{"refused", "Refused"}, std::pair{"broken", "Broken"}}) {
        out << title << "\n";
        std::vector<Row> rows;
        for (const auto& [reason, count] : sums.at(key).items()) {
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
        for (const auto& d : devices.at("smcr")) {
            if (word(d.value("pnet_id", "")) == id) {
                const std::string net = word(d.at("net_device"));
                rows.push_back({id.empty() ? "-" : id, net.empty() ? "n/a" : net, word(d.at("device")),
                                word(d.at("port")), networks});
            }
        }
    };
    const json pnets = devices.value("pnets", json::array());  // an older agent has none
    for (const auto& pnet : pnets) {
        const std::size_t before = rows.size();
        row(word(pnet.at("id")), words(pnet.at("networks")));
        if (rows.size() == before) {  // this node has none of its devices
            rows.push_back({word(pnet.at("id")), "n/a", "n/a", "n/a", words(pnet.at("networks"))});
        }
    }
    row("", pnets.empty() ? "all" : "all others");
    print_table(out, rows);
}

void print_dry_run(std::ostream& out, const json& answer) {
    for (const auto& space : answer.at("namespaces")) {
        if (space.contains("failed")) {
            out << "Namespace " << word(space.at("netns"))
                << ": its sockets cannot be listed: " << word(space.at("failed")) << "\n\n";
            continue;
        }
        out << "Namespace " << word(space.at("netns")) << ": of " << word(space.at("outbound"))
            << " connections made here " << word(space.at("offered")) << " would be offered SMC; "
            << word(space.at("inbound")) << " were accepted: their clients' nodes decide\n";
        std::vector<Row> rows{{"Server", "Cgroup", "#Conns", "New ones would be"}};
        for (const auto& server : space.at("servers")) {
            rows.push_back(
                {word(server.at("server")), word(server.value("cgroup", json(""))), word(server.at("connections")),
                 server.at("offered").get<bool>() ? "offered SMC" : "plain TCP: " + word(server.at("obstacle"))});
        }
        print_table(out, rows);
        if (space.at("left_out") != 0) {
            out << "and " << word(space.at("left_out")) << " more connections\n";
        }
        out << "\n";
    }
    if (answer.at("namespaces").empty()) {
        out << "No network namespace is served\n";
    }
}

void print_drain(std::ostream& out, const json& answer) {
    out << (answer.at("draining").get<bool>() ? "Draining: new connections are plain TCP" : "Not draining") << "; "
        << word(answer.at("connections")) << " connections are in the agent";
    if (answer.at("connections") != 0 && answer.contains("live")) {  // an older agent does not say
        const auto& live = answer.at("live");
        out << ": " << word(live.at("smcd")) << " over SMC-D, " << word(live.at("smcr")) << " over SMC-R, "
            << word(live.at("fallback")) << " over TCP, " << word(live.at("handshake")) << " being set up";
    }
    out << "\n";
}

void print_upgrade(std::ostream& out, const json& answer) {
    out << "smc-agent " << word(answer.at("version")) << ", pid " << word(answer.at("pid"))
        << ", has taken over from pid " << word(answer.at("before")) << " after " << word(answer.at("took_ms"))
        << " ms\n";
    for (const auto& agent : answer.at("leaving")) {
        out << word(agent.at("connections")) << " connections stay with the agent at " << word(agent.at("socket"))
            << " until they end: " << word(agent.at("smcd")) << " over SMC-D, " << word(agent.at("smcr"))
            << " over SMC-R, " << word(agent.at("fallback")) << " over TCP\n";
    }
}

void print_ueids(std::ostream& out, const json& answer) {
    for (const auto& eid : answer.at("ueids")) {
        out << word(eid) << "\n";
    }
}

void print_seid(std::ostream& out, const json& answer) {
    const std::string seid = word(answer.at("seid"));
    out << (seid.empty() ? "n/a" : seid) << (answer.at("enabled").get<bool>() ? " [enabled]" : " [disabled]") << "\n";
}

}  // namespace smc::ctl
