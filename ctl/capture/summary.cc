// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ctl/capture/summary.h"

#include <ostream>

namespace smc::capture {

namespace {

using nlohmann::ordered_json;

std::string end_text(const QpEnd& end) {
    return qp_text(end.gid, end.qpn);
}

std::string state_text(const Link& link) {
    return !link.deleted.empty() ? "deleted by the " + link.deleted
           : link.confirmed      ? "confirmed"
                                 : "confirmation not seen";
}

std::string identity(const PeerId& peer, const std::string& host) {
    return text(peer) + (host.empty() ? "" : " (" + host + ")");
}

std::string or_not_seen(const std::string& text) {
    return text.empty() ? "not in this capture" : text;
}

ordered_json or_null(const std::string& text) {
    return text.empty() ? ordered_json(nullptr) : ordered_json(text);
}

const LinkGroup* group_of(const Dissector& dissector, const Connection& c) {
    return c.link_group ? &dissector.link_groups()[*c.link_group] : nullptr;
}

struct Counter {
    const char* name;
    std::uint64_t Counters::*value;
    const char* meaning;
    bool is_usual = false;  // does not mean that SMC is missing
};

constexpr Counter kCounters[] = {
    {"one_direction", &Counters::one_direction, "connections and links of which only one direction was captured"},
    {"without_syn", &Counters::without_syn, "connections that began before the capture"},
    {"unnamed_qps", &Counters::unnamed_qps,
     "queue pairs whose CLC was not captured, or not whole: their LLC and CDC messages are shown without connections"},
    {"connections_not_followed", &Counters::connections_not_followed, "connections not followed: too many"},
    {"sends_to_unknown_qps", &Counters::sends_to_unknown_qps,
     "RoCE SENDs to queue pairs whose CLC is not in this capture, and that do not look like SMC"},
    {"retransmissions", &Counters::retransmissions, "RoCE packets seen again"},
    {"gaps", &Counters::gaps, "gaps in the sequence of RoCE packets"},
    {"naks", &Counters::naks, "RoCE requests that the other end has refused (NAK)"},
    {"rnr_naks", &Counters::rnr_naks, "RoCE requests for which the other end had no receive buffer (RNR NAK)"},
    {"cut_syns", &Counters::cut_syns,
     "SYNs whose TCP options the snap length cut: it is not known whether they ask for SMC"},
    {"cut_packets", &Counters::cut_packets, "RoCE SENDs cut by the snap length"},
    {"cdc_without_connection", &Counters::cdc_without_connection,
     "CDC messages with an alert token that no CLC message in this capture has assigned"},
    {"cdc_missing", &Counters::cdc_missing, "cursors that went on by more than a buffer: CDC messages are missing"},
    {"links_not_followed", &Counters::links_not_followed, "links not followed: too many"},
    {"not_ip", &Counters::not_ip, "frames not looked at: no IP", true},
    {"fragments", &Counters::fragments, "frames not looked at: IP fragments"},
    {"tunnels", &Counters::tunnels, "frames not looked at: in a tunnel (IP in IP, GRE, VXLAN, GENEVE)"},
    {"other_protocols", &Counters::other_protocols, "frames not looked at: neither TCP nor RoCE", true},
    {"broken_frames", &Counters::broken_frames, "frames not looked at: broken, or cut too short"},
};

// The only direction in which packets of the link were captured; empty: both, or none.
std::string one_direction(const Dissector& dissector, const Link& link) {
    const RoceGid &server = link.server.gid, &client = link.client.gid;
    return dissector.only_to(server, client)   ? "client to server"
           : dissector.only_to(client, server) ? "server to client"
                                               : "";
}

std::string unnamed_missing(const Dissector& dissector, const UnnamedQp& qp) {
    return std::string("the CLC of this link was not captured, or not whole") +
           (dissector.only_to(qp.gid, qp.peer) ? "; only one direction was captured" : "");
}

void print_unnamed(std::ostream& out, const Dissector& dissector, const UnnamedQp& qp) {
    out << "queue pair " << qp_text(qp.gid, qp.qpn) << ", from " << qp_text(qp.peer, qp.peer_qpn) << ", frames "
        << qp.first_frame << " to " << qp.last_frame << "\n"
        << "  messages    " << qp.llc << " LLC, " << qp.cdc << " CDC of " << qp.tokens.size() << " connections\n"
        << "  missing     " << unnamed_missing(dissector, qp) << "\n\n";
}

void print_group(std::ostream& out, const Dissector& dissector, std::size_t number, const LinkGroup& g) {
    out << "link group " << number << ", " << g.variant
        << (g.from_start ? "" : ", its first contact is not, or not whole, in this capture") << "\n"
        << "  server      " << identity(g.server, g.server_host) << "\n"
        << "  client      " << identity(g.client, g.client_host) << "\n";
    for (const Link& link : g.links) {
        out << "  link " << (link.number != 0 ? std::to_string(link.number) : "?") << "      " << end_text(link.server)
            << " - " << end_text(link.client) << ", MTU " << bytes_of(link.mtu) << ", " << state_text(link) << "\n";
        if (const std::string only = one_direction(dissector, link); !only.empty()) {
            out << "  missing     only its packets from " << only << " were captured\n";
        }
    }
    if (g.rejected_links != 0) {
        out << "  rejected    " << g.rejected_links << " ADD LINK by the client: " << g.rejection << "\n";
    }
    out << "  ended       " << or_not_seen(g.ended.empty() ? "" : "by the " + g.ended) << "\n\n";
}

}  // namespace

void print_counters(std::ostream& out, const Dissector& dissector, bool usual_ones) {
    const Counters counters = dissector.counters();
    for (const Counter& counter : kCounters) {
        if (counters.*counter.value != 0 && (usual_ones || !counter.is_usual)) {
            out << counters.*counter.value << " " << counter.meaning << "\n";
        }
    }
    for (const auto& [link_type, frames] : dissector.skipped()) {
        out << frames << " frames of link type " << link_type_text(link_type) << " were skipped\n";
    }
}

void print_summary(std::ostream& out, const Dissector& dissector) {
    for (const Connection& c : dissector.connections()) {
        out << "connection " << c.client.text() << " > " << c.server.text() << ", frames " << c.first_frame << " to "
            << c.last_frame << "\n"
            << "  proposed    " << proposed(c) << "\n"
            << "  answered    " << answered(c, group_of(dissector, c)) << "\n";
        if (c.link_group) {
            out << "  link group  " << *c.link_group + 1 << "\n";
        }
        out << "  bytes       " << carried(c) << "\n"
            << "  ended       " << or_not_seen(ended(c)) << "\n";
        if (const std::string lost = missing(c); !lost.empty()) {
            out << "  missing     " << lost << "\n";
        }
        out << "\n";
    }
    for (std::size_t i = 0; i < dissector.link_groups().size(); i++) {
        print_group(out, dissector, i + 1, dissector.link_groups()[i]);
    }
    for (const UnnamedQp& qp : dissector.unnamed_qps()) {
        print_unnamed(out, dissector, qp);
    }
    if (dissector.connections().empty()) {
        out << "no TCP connection with option 254 in its SYN, or with CLC\n";
    }
    print_counters(out, dissector, true);
}

void summary_json(const Dissector& dissector, const std::function<void(const ordered_json&)>& print) {
    for (const Connection& c : dissector.connections()) {
        const LinkGroup* group = group_of(dissector, c);
        ordered_json line{{"kind", "connection"},          {"client", c.client.text()},  {"server", c.server.text()},
                          {"first_frame", c.first_frame},  {"last_frame", c.last_frame}, {"proposed", proposed(c)},
                          {"answered", answered(c, group)}};
        line["chosen"] = c.accept ? ordered_json(chosen(c, group)) : ordered_json(nullptr);
        line["link_group"] = c.link_group ? ordered_json(*c.link_group + 1) : ordered_json(nullptr);
        line["carried"] = carried(c);
        const auto bytes = [](const Half& half) {
            return half.producer ? ordered_json(half.received) : ordered_json(nullptr);
        };
        line["bytes_client_to_server"] = bytes(c.server_half);
        line["bytes_server_to_client"] = bytes(c.client_half);
        line["ended"] = or_null(ended(c));
        if (c.decline) {
            line["decline"] = {{"by", c.decline->by_server ? "server" : "client"},
                               {"late", c.decline->late},
                               {"reason", static_cast<std::uint32_t>(c.decline->message.reason)},
                               {"reason_text", or_null(reason_meaning(c.decline->message, c.decline->message.reason))}};
        }
        line["missing"] = or_null(missing(c));
        print(line);
    }
    for (std::size_t i = 0; i < dissector.link_groups().size(); i++) {
        const LinkGroup& g = dissector.link_groups()[i];
        ordered_json line{{"kind", "link_group"},           {"link_group", i + 1},
                          {"variant", g.variant},           {"from_start", g.from_start},
                          {"server", text(g.server)},       {"server_host", g.server_host},
                          {"client", text(g.client)},       {"client_host", g.client_host},
                          {"links", ordered_json::array()}, {"rejected_links", g.rejected_links}};
        for (const Link& link : g.links) {
            line["links"].push_back({{"number", link.number},
                                     {"server", end_text(link.server)},
                                     {"client", end_text(link.client)},
                                     {"mtu", bytes_of(link.mtu)},
                                     {"state", state_text(link)},
                                     {"one_direction", or_null(one_direction(dissector, link))}});
        }
        line["ended"] = or_null(g.ended);
        print(line);
    }
    for (const UnnamedQp& qp : dissector.unnamed_qps()) {
        print({{"kind", "queue_pair"},
               {"queue_pair", qp_text(qp.gid, qp.qpn)},
               {"peer", qp_text(qp.peer, qp.peer_qpn)},
               {"first_frame", qp.first_frame},
               {"last_frame", qp.last_frame},
               {"llc", qp.llc},
               {"cdc", qp.cdc},
               {"connections", qp.tokens.size()},
               {"missing", unnamed_missing(dissector, qp)}});
    }
    const Counters all = dissector.counters();
    ordered_json counters{{"kind", "counters"}};
    for (const Counter& counter : kCounters) {
        counters[counter.name] = all.*counter.value;
    }
    counters["skipped_frames"] = ordered_json::object();
    for (const auto& [link_type, frames] : dissector.skipped()) {
        counters["skipped_frames"][link_type_text(link_type)] = frames;
    }
    print(counters);
}

}  // namespace smc::capture
