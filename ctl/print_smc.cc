// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Link groups, devices and sockets in the columns of smc-tools (smcr, smcd, smcss), which users and scripts know.
#include <cstdio>

#include "ctl/print.h"
#include "ctl/table.h"

namespace smc::ctl {

namespace {

using nlohmann::json;

std::string hex8(const json& value) {
    char buffer[12];
    std::snprintf(buffer, sizeof buffer, "%08x", value.get<unsigned>());
    return buffer;
}

// "-" for an empty value, so that columns stay in place.
std::string or_dash(const json& value) {
    const std::string text = word(value);
    return text.empty() ? "-" : text;
}

std::string vlan_of(const json& group) {
    const unsigned vlan = group.value("vlan", 0U);
    return vlan == 0 ? "-" : std::to_string(vlan);
}

void print_groups(std::ostream& out, const json& groups) {
    std::vector<Row> rows{{"LG-ID", "LG-Role", "LG-Type", "VLAN", "#Conns", "PNET-ID"}};
    for (const auto& g : groups) {
        rows.push_back({hex8(g.at("id")), word(g.at("role")), word(g.at("type")), vlan_of(g), word(g.at("connections")),
                        or_dash(g.value("pnet_id", ""))});
    }
    print_table(out, rows);
}

void print_blocks(std::ostream& out, const json& groups) {
    for (const auto& g : groups) {
        print_table(out, {{"LG-ID", ": " + hex8(g.at("id"))},
                          {"LG-Role", ": " + word(g.at("role"))},
                          {"LG-Type", ": " + word(g.at("type"))},
                          {"VLAN", ": " + vlan_of(g)},
                          {"PNET-ID", ": " + or_dash(g.value("pnet_id", ""))},
                          {"Version", ": " + word(g.at("version"))},
                          {"Peer-Rel", ": " + word(g.at("release"))},
                          {"Peer-Host", ": " + or_dash(g.at("host_name"))},
                          {"Peer-OS", ": " + word(g.at("peer_os"))},
                          {"Direct", std::string(": ") + (g.at("direct").get<bool>() ? "Yes" : "No")},
                          {"EID", ": " + or_dash(g.at("eid"))},
                          {"#Conns", ": " + word(g.at("connections"))},
                          {"Max-Conns", ": " + word(g.at("max_connections"))},
                          {"Sndbuf", ": " + word(g.at("rmbe_bytes"))},
                          {"RMB", ": " + word(g.at("rmbs")) + " with RMBEs of " + word(g.at("rmbe_bytes"))}});
        out << "\n";
    }
}

void print_links(std::ostream& out, const json& groups, int details) {
    Row head{"LG-ID", "LG-Role", "LG-Type", "Net-Dev", "Link-State", "#Conns"};
    if (details > 0) {
        head.insert(head.end(), {"Link-UID", "Peer-UID", "IB-Dev", "IB-P"});
    }
    if (details > 1) {
        head.insert(head.end(), {"Local-GID", "Peer-GID"});
    }
    std::vector<Row> rows{head};
    for (const auto& g : groups) {
        for (const auto& l : g.at("links")) {
            Row row{hex8(g.at("id")),    word(g.at("role")),       word(g.at("type")), or_dash(l.at("net_device")),
                    word(l.at("state")), word(l.at("connections"))};
            if (details > 0) {
                row.insert(row.end(),
                           {word(l.at("link_uid")), word(l.at("peer_uid")), word(l.at("device")), word(l.at("port"))});
            }
            if (details > 1) {
                row.insert(row.end(), {word(l.at("local_gid")), word(l.at("peer_gid"))});
            }
            rows.push_back(std::move(row));
        }
    }
    print_table(out, rows);
}

std::string local(const json& c) {
    return word(c.at(c.at("role") == "client" ? "client" : "server"));
}
std::string remote(const json& c) {
    return word(c.at(c.at("role") == "client" ? "server" : "client"));
}

std::string mode(const json& c) {
    if (c.contains("smcr")) {
        return "SMCR";
    }
    if (c.contains("smcd")) {
        return "SMCD";
    }
    if (c.at("path") == "tuned" || c.at("path") == "bypass") {
        return "TCP " + word(c.at("path"));
    }
    const std::string peer = c.contains("peer_reason") ? word(c.at("peer_reason").at("code")) : "";
    return "TCP " + word(c.at("reason").at("code")) + (peer.empty() ? "" : "/" + peer);
}

// The cursor or the flags of "0000:00000a00 c000".
std::string part(const json& c, const char* name, bool flags) {
    const std::string text = word(c.at("cursors").at(name));
    return flags ? text.substr(text.find(' ') + 1) : text.substr(0, text.find(' '));
}

// As smcss: which directions are shut, "R-W" both. The connection state is the last two digits of the flags.
std::string shutdowns(const json& c) {
    const auto done = [&](const char* name) { return std::stoul(part(c, name, true).substr(2), nullptr, 16) != 0; };
    return std::string(done("rx_producer") ? "R" : "<") + "-" + (done("tx_producer") ? "W" : ">");
}

}  // namespace

json chosen(json groups, const GroupView& view) {
    if (!view.smcr) {
        groups.erase("smcr");
    }
    if (!view.smcd || view.links) {
        groups.erase("smcd");
    }
    return groups;
}

void print_link_groups(std::ostream& out, const json& groups, const GroupView& view) {
    if (groups.contains("smcr")) {
        out << "SMC-R link groups\n";
        if (view.links) {
            print_links(out, groups.at("smcr"), view.details);
        } else if (view.details > 0) {
            print_blocks(out, groups.at("smcr"));
        } else {
            print_groups(out, groups.at("smcr"));
        }
    }
    if (groups.contains("smcd")) {
        out << (groups.contains("smcr") ? "\n" : "") << "SMC-D link groups\n";
        Row head{"LG-ID", "VLAN", "#Conns", "PNET-ID"};
        if (view.details > 0) {
            head.insert(head.end(), {"Peer-GID", "CHID", "EID", "Peer-Host"});
        }
        std::vector<Row> rows{head};
        for (const auto& g : groups.at("smcd")) {
            Row row{hex8(g.at("id")), "-", word(g.at("connections")), "-"};
            if (view.details > 0) {
                row.insert(row.end(),
                           {word(g.at("peer_gid")), word(g.at("chid")), word(g.at("eid")), or_dash(g.at("host_name"))});
            }
            rows.push_back(std::move(row));
        }
        print_table(out, rows);
    }
}

namespace {

std::string roce_version(const json& device) {
    const bool v1 = !device.value("gids_v1", json::array()).empty(), v2 = !device.at("gids").empty();
    return v1 && v2 ? "RoCEv1+v2" : v1 ? "RoCEv1" : "RoCEv2";
}

}  // namespace

void print_devices(std::ostream& out, const json& devices, int details) {
    out << "RoCE devices\n";
    Row head{"Net-Dev", "IB-Dev", "IB-P", "IB-State", "Type", "Crit"};
    if (details > 0) {
        head.insert(head.end(), {"FID", "PCI-ID", "PCHID"});
    }
    head.insert(head.end(), {"#Links", "PNET-ID"});
    if (details > 0) {
        head.insert(head.end(), {"MTU", "GIDs"});
    }
    std::vector<Row> rows{head};
    for (const auto& d : devices.at("smcr")) {
        Row row{or_dash(d.at("net_device")), word(d.at("device")), word(d.at("port")),
                word(d.at("state")),         roce_version(d),      d.at("links").get<int>() > 0 ? "Yes" : "No"};
        if (details > 0) {
            row.insert(row.end(), {"-", or_dash(d.at("pci_id")), "-"});
        }
        row.insert(row.end(), {word(d.at("links")), or_dash(d.value("pnet_id", ""))});
        if (details > 0) {
            std::string gids;
            for (const char* version : {"gids", "gids_v1"}) {
                for (const auto& gid : d.value(version, json::array())) {
                    gids += (gids.empty() ? "" : " ") + word(gid);
                }
            }
            row.insert(row.end(), {word(d.at("mtu")), gids});
        }
        rows.push_back(std::move(row));
    }
    print_table(out, rows);
    for (const auto& [name, why] : devices.at("refused").items()) {
        out << name << " is not used: " << word(why) << "\n";
    }
    out << "\nISM devices\n";
    rows = {{"FID", "Type", "PCI-ID", "PCHID", "InUse", "#LGs", "PNET-ID"}};
    for (const auto& d : devices.at("smcd")) {
        rows.push_back({"-", word(d.at("provider")), or_dash(d.value("device", "")), word(d.at("chid")),
                        d.at("groups").get<int>() > 0 ? "Yes" : "No", word(d.at("groups")), "-"});
    }
    print_table(out, rows);
}

namespace {

bool only_smcr(const SocketView& view) {
    return view.smcr && !view.smcd && !view.tcp;
}

bool only_smcd(const SocketView& view) {
    return view.smcd && !view.smcr && !view.tcp;
}

Row socket_columns(const SocketView& view) {
    Row head{"State", "UID", "Inode", "Local Address", "Peer Address", "Intf", "Mode"};
    if (view.details) {
        head.insert(head.end(),
                    {"Shutd", "Token", "Sndbuf", "Rcvbuf", "Peerbuf", "rxprod-Cursor", "rxcons-Cursor", "rxFlags",
                     "txprod-Cursor", "txcons-Cursor", "txFlags", "txprep-Cursor", "txsent-Cursor", "txfin-Cursor"});
    }
    if (only_smcr(view)) {
        head.insert(head.end(), {"Role", "IB-device", "Port", "Linkid", "GID", "Peer-GID"});
    } else if (only_smcd(view)) {
        head.insert(head.end(), {"GID", "Token", "Peer-GID", "Peer-Token", "Linkid"});
    }
    return head;
}

void add_details(Row& row, const json& c) {
    const bool smcr = c.contains("smcr");
    if (!smcr && !c.contains("smcd")) {
        row.insert(row.end(), 14, "-");
        return;
    }
    const json& own = smcr ? c.at("smcr") : c.at("smcd");
    const std::string rx = word(own.at(smcr ? "rmbe_bytes" : "dmb_bytes"));
    const std::string tx = word(own.at(smcr ? "peer_rmbe_bytes" : "peer_dmb_bytes"));
    // The agent sends at once what it prepares: the prepared and the sent cursor are the same.
    const std::string sent = part(c, "tx_producer", false), taken = part(c, "tx_consumer", false);
    row.insert(row.end(), {shutdowns(c), word(own.at("token")), smcr ? rx : "-", rx, tx, part(c, "rx_producer", false),
                           part(c, "rx_consumer", false), part(c, "rx_producer", true), sent, taken,
                           part(c, "tx_producer", true), sent, sent, taken});
}

Row socket_row(const json& c, const SocketView& view) {
    // The sockets belong to the applications: the agent does not know their inodes, nor the user of a server.
    Row row{word(c.at("state")),
            c.contains("uid") ? word(c.at("uid")) : "-",
            "-",
            local(c),
            remote(c),
            c.contains("smcr") ? or_dash(c.at("smcr").at("net_device")) : "-",
            mode(c)};
    if (view.details) {
        add_details(row, c);
    }
    if (only_smcr(view)) {
        const json& r = c.at("smcr");
        row.insert(row.end(), {word(r.at("role")), word(r.at("device")), word(r.at("port")), word(r.at("link_id")),
                               word(r.at("gid")), word(r.at("peer_gid"))});
    } else if (only_smcd(view)) {
        const json& d = c.at("smcd");
        row.insert(row.end(),
                   {"-", word(d.at("token")), word(d.at("peer_gid")), word(d.at("peer_token")), hex8(d.at("group"))});
    }
    return row;
}

}  // namespace

json chosen(json connections, const SocketView& view) {
    json out = json::array();
    for (auto& c : connections) {
        if (c.contains("smcr") ? view.smcr : c.contains("smcd") ? view.smcd : view.tcp) {
            out.push_back(std::move(c));
        }
    }
    return out;
}

void print_sockets(std::ostream& out, const json& connections, const SocketView& view) {
    std::vector<Row> rows{socket_columns(view)};
    for (const auto& c : connections) {
        rows.push_back(socket_row(c, view));
    }
    print_table(out, rows);
}

}  // namespace smc::ctl
