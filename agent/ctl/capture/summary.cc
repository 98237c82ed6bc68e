// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/ctl/capture/summary.h"

#include <ostream>

namespace smc::capture {

namespace {

using nlohmann::ordered_json;

std::string end_text(const Link::End& end) {
    return Endpoint{end.gid.normalised().bytes, 0}.ip_text() + " qp " + text(end.qpn);
}

std::string state_text(const Link& link) {
    return link.deleted ? "deleted by the " + *link.deleted : link.confirmed ? "confirmed" : "not confirmed";
}

bool is_smcr(const Connection& c) {
    return c.confirm && std::holds_alternative<clc::AcceptR>(*c.confirm) && !c.decline;
}

std::string bytes_text(const Connection& c) {
    if (!c.confirm || c.decline) {
        return "by TCP";
    }
    if (!is_smcr(c)) {
        return "in shared memory, which no capture shows";
    }
    return "client to server " + std::to_string(c.server_half.received) + ", server to client " +
           std::to_string(c.client_half.received) + " (CDC cursors)";
}

std::string identity(const PeerId& peer, const std::string& host) {
    return text(peer) + (host.empty() ? "" : " (" + host + ")");
}

void print_counter(std::ostream& out, std::uint64_t count, const char* what) {
    if (count != 0) {
        out << count << " " << what << "\n";
    }
}

}  // namespace

void print_summary(std::ostream& out, const Dissector& dissector) {
    for (const Connection& c : dissector.connections()) {
        out << "connection " << c.client.text() << " > " << c.server.text() << ", frames " << c.first_frame << " to "
            << c.last_frame << "\n"
            << "  proposed    " << proposed(c) << "\n"
            << "  answered    " << answered(c) << "\n";
        if (c.link_group) {
            out << "  link group  " << *c.link_group + 1 << "\n";
        }
        out << "  bytes       " << bytes_text(c) << "\n"
            << "  ended       " << ended(c) << "\n\n";
    }
    for (std::size_t i = 0; i < dissector.link_groups().size(); i++) {
        const LinkGroup& g = dissector.link_groups()[i];
        out << "link group " << i + 1 << ", " << g.variant << "\n"
            << "  server      " << identity(g.server, g.server_host) << "\n"
            << "  client      " << identity(g.client, g.client_host) << "\n";
        for (const Link& link : g.links) {
            out << "  link " << static_cast<unsigned>(link.number) << "      " << end_text(link.server) << " - "
                << end_text(link.client) << ", MTU " << bytes_of(link.mtu) << ", " << state_text(link) << "\n";
        }
        for (const auto& event : g.events) {
            out << "  event       " << event << "\n";
        }
        out << "  ended       " << (g.ended ? "by the " + *g.ended : "not in this capture") << "\n\n";
    }
    const Counters& counters = dissector.counters();
    if (dissector.connections().empty()) {
        out << "no TCP connection with option 254 in its SYN\n";
    }
    print_counter(out, counters.connections_not_followed, "connections not followed: too many");
    print_counter(out, counters.sends_to_unknown_qps, "RoCE SENDs to queue pairs whose CLC is not in this capture");
    print_counter(out, counters.retransmissions, "RoCE packets seen again");
    print_counter(out, counters.gaps, "gaps in the sequence of RoCE packets");
    print_counter(out, counters.cdc_without_connection, "CDC messages with an alert token that nobody was given here");
}

std::vector<ordered_json> summary_json(const Dissector& dissector) {
    std::vector<ordered_json> lines;
    for (const Connection& c : dissector.connections()) {
        ordered_json line{{"kind", "connection"},          {"client", c.client.text()},
                          {"server", c.server.text()},     {"first_frame", c.first_frame},
                          {"last_frame", c.last_frame},    {"proposed", proposed(c)},
                          {"answered", answered(c)},       {"ended", ended(c)}};
        line["chosen"] = c.accept ? ordered_json(chosen(*c.accept, c.proposal)) : ordered_json(nullptr);
        line["link_group"] = c.link_group ? ordered_json(*c.link_group + 1) : ordered_json(nullptr);
        if (is_smcr(c)) {
            line["bytes_client_to_server"] = c.server_half.received;
            line["bytes_server_to_client"] = c.client_half.received;
        }
        lines.push_back(std::move(line));
    }
    for (std::size_t i = 0; i < dissector.link_groups().size(); i++) {
        const LinkGroup& g = dissector.link_groups()[i];
        ordered_json line{{"kind", "link_group"}, {"link_group", i + 1},         {"variant", g.variant},
                          {"server", text(g.server)}, {"server_host", g.server_host}, {"client", text(g.client)},
                          {"client_host", g.client_host}, {"links", ordered_json::array()}, {"events", g.events}};
        for (const Link& link : g.links) {
            line["links"].push_back({{"number", link.number},
                                     {"server", end_text(link.server)},
                                     {"client", end_text(link.client)},
                                     {"mtu", bytes_of(link.mtu)},
                                     {"state", state_text(link)}});
        }
        line["ended"] = g.ended ? ordered_json(*g.ended) : ordered_json(nullptr);
        lines.push_back(std::move(line));
    }
    const Counters& n = dissector.counters();
    lines.push_back({{"kind", "counters"},
                     {"connections_not_followed", n.connections_not_followed},
                     {"sends_to_unknown_qps", n.sends_to_unknown_qps},
                     {"retransmissions", n.retransmissions},
                     {"gaps", n.gaps},
                     {"cdc_without_connection", n.cdc_without_connection}});
    return lines;
}

}  // namespace smc::capture
