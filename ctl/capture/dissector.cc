// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Option 254 and CLC: from TCP packets to connections and the queue pairs that they name.
#include "ctl/capture/dissector.h"

#include <algorithm>

#include "smc/wire/tcp_option.h"

namespace smc::capture {

namespace {

bool is_tunnel(std::uint16_t udp_port) {
    constexpr std::uint16_t kVxlan = 4789, kVxlanOfLinux = 8472, kGeneve = 6081;
    return udp_port == kVxlan || udp_port == kVxlanOfLinux || udp_port == kGeneve;
}

}  // namespace

void Dissector::add(const Frame& frame) {
    frame_ = &frame;
    if (!is_known_link_type(frame.link_type)) {
        skipped_[frame.link_type]++;
        return;
    }
    const auto parsed = parse_packet(frame.link_type, frame.bytes);
    const auto* packet = std::get_if<Packet>(&parsed);
    if (packet == nullptr) {
        skip(std::get<Skipped>(parsed));
    } else if (packet->transport == Transport::kTcp) {
        add_tcp(*packet);
    } else if (packet->transport == Transport::kRoceV1 || packet->to.port == kRoceV2Port) {
        add_roce(*packet);
    } else {
        skip(is_tunnel(packet->to.port) ? Skipped::kTunnel : Skipped::kOther);
    }
}

void Dissector::skip(Skipped why) {
    switch (why) {
        case Skipped::kNotIp:
            counters_.not_ip++;
            break;
        case Skipped::kFragment:
            counters_.fragments++;
            break;
        case Skipped::kTunnel:
            counters_.tunnels++;
            break;
        case Skipped::kOther:
            counters_.other_protocols++;
            break;
        case Skipped::kBroken:
            counters_.broken_frames++;
            break;
    }
}

Counters Dissector::counters() const {
    Counters all = counters_;
    for (const Connection& c : connections_) {
        all.one_direction += one_direction(c) ? 1 : 0;
        all.without_syn += c.from_start || one_direction(c) ? 0 : 1;
    }
    for (const LinkGroup& group : link_groups_) {
        for (const Link& link : group.links) {
            const RoceGid &server = link.server.gid, &client = link.client.gid;
            all.one_direction += only_to(server, client) || only_to(client, server) ? 1 : 0;
        }
    }
    for (const UnnamedQp& qp : unnamed_qps_) {
        all.one_direction += only_to(qp.gid, qp.peer) ? 1 : 0;
    }
    all.unnamed_qps = unnamed_qps_.size();
    return all;
}

// Option 254 of a SYN or SYN-ACK, also of a retransmitted one.
void Dissector::report_option(const Packet& packet) {
    const Bytes option = (packet.flags & kSyn) != 0 ? tcp::find_smc_option_bytes(packet.options) : Bytes{};
    if (option.empty()) {
        return;
    }
    Description message = describe_tcp_option(option);
    const std::string segment = (packet.flags & kAck) != 0 ? "SYN-ACK" : "SYN";
    message.fields.insert(message.fields.begin(), {"segment", "The segment that carries the option", segment});
    sink_({frame_->number, frame_->time_us, packet.from.text(), packet.to.text(), message});
}

void Dissector::add_tcp(const Packet& packet) {
    report_option(packet);
    if ((packet.flags & (kSyn | kAck)) == kSyn) {
        open(packet);
    }
    auto found = followed_.find(std::pair(packet.from, packet.to));
    bool from_server = found == followed_.end();
    if (from_server) {
        found = followed_.find(std::pair(packet.to, packet.from));
    }
    const bool again = found != followed_.end() && from_server && (packet.flags & kSyn) != 0 &&
                       connections_[found->second.history].server_answered &&
                       found->second.server_first != packet.sequence &&
                       found->second.client_first != packet.acknowledgment - 1;  // a server may answer one SYN twice
    if (found == followed_.end() || again) {
        // A captured SYN would have opened the connection. Without it, this packet may belong to a new connection on
        // the same ports.
        if (again) {
            followed_.erase(found);
        }
        open_late(packet);
        found = followed_.find(std::pair(packet.from, packet.to));
        from_server = found == followed_.end();
        found = from_server ? followed_.find(std::pair(packet.to, packet.from)) : found;
    }
    if (found == followed_.end()) {
        return;
    }
    Followed& followed = found->second;
    Connection& history = connections_[followed.history];
    if (from_server && (packet.flags & kSyn) != 0) {
        if (!history.server_answered) {
            history.server_answered = true;
            history.server_has_option = tcp::find_smc_option(packet.options).has_value();
            followed.server = TcpStream(packet.sequence + 1);
            followed.server_first = packet.sequence;
            if (!history.server_has_option) {
                followed.client.stop();
                followed.server.stop();
            }
        }
    } else if (from_server && !history.server_answered && whole_message(packet.payload)) {
        // The SYN-ACK is not in the capture; a CLC message of the server shows that it had the option.
        history.server_answered = history.server_has_option = history.has_hole = true;
        followed.server = TcpStream(packet.sequence);
    } else if (from_server && !history.server_answered && (packet.flags & kRst) == 0) {
        return;  // the packet belongs to an earlier connection on these ports
    }
    TcpStream& stream = from_server ? followed.server : followed.client;
    if (!stream.is_near(packet.sequence) && history.server_answered) {
        return;  // likewise
    }
    stream.seen(packet.sequence + static_cast<std::uint32_t>(packet.length));
    history.last_frame = frame_->number;
    (from_server ? history.server_seen : history.client_seen) = true;
    history.client_acked |= !from_server && (packet.flags & (kAck | kRst)) == kAck;
    add_to_stream(followed, from_server, packet);
    (from_server ? history.server_fin : history.client_fin) |= (packet.flags & kFin) != 0;
    if ((packet.flags & kRst) != 0 && !history.reset_by_server) {
        history.reset_by_server = from_server;
    }
}

void Dissector::add_to_stream(Followed& followed, bool from_server, const Packet& packet) {
    TcpStream& stream = from_server ? followed.server : followed.client;
    if (stream.stopped()) {
        return;
    }
    if (packet.length > packet.payload.size()) {
        connections_[followed.history].has_hole = true;  // cut by the snap length
    }
    if (packet.payload.empty()) {
        return;
    }
    bool& join = from_server ? followed.join_server : followed.join_client;
    if (join && !whole_message(packet.payload)) {
        return;
    }
    if (join) {
        stream.skip_to(packet.sequence);
        join = false;
    }
    // A SYN takes one sequence number; with TCP Fast Open, the same segment has data after it.
    const std::uint32_t sequence = packet.sequence + ((packet.flags & kSyn) != 0 ? 1 : 0);
    stream.add(sequence, packet.payload);
    if (stream.has_hole() && whole_message(packet.payload)) {
        // This segment begins with a whole CLC message. The bytes missing before it will not come any more, because the
        // sender waited for the answer to them.
        connections_[followed.history].has_hole = true;
        stream.skip_to(sequence);
        stream.add(sequence, packet.payload);
    }
    read_clc(followed, from_server);
    Connection& history = connections_[followed.history];
    (from_server ? history.server_waits : history.client_waits) = stream.has_hole();
}

// Whether the other peer's Decline may be missing from the capture: after a Decline comes application data.
bool Dissector::decline_may_be_missing(const Followed& followed, bool of_server) const {
    const Connection& history = connections_[followed.history];
    if (of_server) {
        return history.accept && (!history.client_seen || followed.join_client || followed.client.has_hole());
    }
    return history.proposal && (!history.server_seen || followed.join_server || followed.server.has_hole());
}

void Dissector::read_clc(Followed& followed, bool of_server) {
    TcpStream& stream = of_server ? followed.server : followed.client;
    const bool last = of_server ? followed.server_last : followed.client_last;
    while (!stream.stopped() && stream.ready().size() >= clc::kHeaderBytes) {
        Connection& history = connections_[followed.history];
        const auto header = clc::decode_header(stream.ready().first(clc::kHeaderBytes));
        const auto* known = std::get_if<clc::Header>(&header);
        const std::size_t length = known != nullptr ? known->length : clc::kHeaderBytes;
        if (length > TcpStream::kMostReady) {
            history.broken = "a CLC message of " + std::to_string(length) + " bytes from the " +
                             (of_server ? "server" : "client") + ", which are not kept";
            return stream.stop();
        }
        if (stream.ready().size() < length) {
            return;
        }
        const std::vector<std::uint8_t> message(stream.ready().begin(),
                                                stream.ready().begin() + static_cast<std::ptrdiff_t>(length));
        stream.take(length);
        const auto decoded = clc::decode(message);
        const auto* fault = std::get_if<Fault>(&decoded);
        const bool data = known == nullptr && decline_may_be_missing(followed, of_server);
        history.data_follows |= data && !last;
        if (fault != nullptr && (last || data)) {
            stream.stop();
            return;
        }
        const Endpoint& from = of_server ? history.server : history.client;
        const Endpoint& to = of_server ? history.client : history.server;
        sink_({frame_->number, frame_->time_us, from.text(), to.text(), describe_clc(message)});
        history.reset_by_server.reset();  // an earlier reset belonged to another connection
        if (fault != nullptr) {
            history.broken =
                std::string(fault->verdict == Verdict::kTreatAsData ? "no CLC message from the "
                                                                    : "a CLC message that cannot be used from the ") +
                (of_server ? "server: " : "client: ") + fault->text() + ": " + text(fault->verdict);
            stream.stop();
            return;
        }
        learn(followed, of_server, std::get<clc::AnyMessage>(decoded));
        if (last) {
            stream.stop();
        }
    }
}

void Dissector::learn(Followed& followed, bool from_server, const clc::AnyMessage& message) {
    Connection& history = connections_[followed.history];
    if (const auto* decline = std::get_if<clc::Decline>(&message)) {
        learn_decline(followed, from_server, *decline);
        return;
    }
    const auto* proposal = std::get_if<clc::Proposal>(&message);
    const auto* smcr = std::get_if<clc::AcceptR>(&message);
    const auto* smcd = std::get_if<clc::AcceptD>(&message);
    const clc::Type type = proposal != nullptr ? clc::Type::kProposal : smcr != nullptr ? smcr->type : smcd->type;
    if (from_server != (type == clc::Type::kAccept)) {
        history.broken = clc::text(type) + " from the " + (from_server ? "server" : "client");
        (from_server ? followed.server : followed.client).stop();
        return;
    }
    if (proposal != nullptr) {
        history.proposal = std::make_unique<clc::Proposal>(*proposal);
        return;
    }
    auto half = smcr != nullptr ? std::make_unique<clc::Acceptance>(*smcr) : std::make_unique<clc::Acceptance>(*smcd);
    (from_server ? history.accept : history.confirm) = std::move(half);
    learn_halves(followed.history);
}

void Dissector::learn_decline(Followed& followed, bool from_server, const clc::Decline& decline) {
    Connection& history = connections_[followed.history];
    if (!history.decline) {
        history.decline = {decline, from_server, history.confirm != nullptr};
    }
    TcpStream& own = from_server ? followed.server : followed.client;
    TcpStream& other = from_server ? followed.client : followed.server;
    own.stop();
    // A Confirm may be under way when the server declines after its Accept, an Accept when the client declines.
    if (from_server && !history.accept) {
        other.stop();
    } else {
        (from_server ? followed.client_last : followed.server_last) = true;
    }
}

std::optional<std::size_t> Dissector::group_of(const QpEnd& server) const {
    const auto found = queue_pairs_.find({server.gid.normalised(), server.qpn});
    return found != queue_pairs_.end() && found->second.of_server ? std::optional(found->second.group) : std::nullopt;
}

// Uses each half as soon as it is known: the client's data may overtake its Confirm (RFC 7609 3.5.2.4).
void Dissector::learn_halves(std::size_t index) {
    Connection& history = connections_[index];
    const auto* server = history.accept ? std::get_if<clc::AcceptR>(history.accept.get()) : nullptr;
    const auto* client = history.confirm ? std::get_if<clc::AcceptR>(history.confirm.get()) : nullptr;
    if (server != nullptr && !history.link_group && !server->first_contact) {
        history.link_group = group_of({server->gid, server->mac, server->qpn, server->psn, server->mtu});
    }
    if (server != nullptr && client != nullptr && !history.link_group) {
        open_group(history, *server, *client);
    }
    if (server != nullptr && history.link_group) {
        history.server_half.token = server->alert_token;
        history.server_half.rmbe_size = server->rmbe_size;
        tokens_[{*history.link_group, true, server->alert_token}] = index;
    }
    if (client != nullptr && history.link_group) {
        history.client_half.token = client->alert_token;
        history.client_half.rmbe_size = client->rmbe_size;
        tokens_[{*history.link_group, false, client->alert_token}] = index;
    }
}

// Opens a link group at its first contact, or at a subsequent contact if the first is not in the capture: Accept and
// Confirm name the queue pairs in both cases.
void Dissector::open_group(Connection& history, const clc::AcceptR& server, const clc::AcceptR& client) {
    const std::size_t index = link_groups_.size();
    history.link_group = index;
    LinkGroup& group = link_groups_.emplace_back();
    group.variant = chosen(*history.accept);
    group.version = server.version;
    group.from_start = server.first_contact;
    group.server = server.peer_id;
    group.client = client.peer_id;
    group.server_host = server.fce ? server.fce->host_name.text() : "";
    group.client_host = client.fce ? client.fce->host_name.text() : "";
    Link& link = group.links.emplace_back();
    link.server = {server.gid, server.mac, server.qpn, server.psn, server.mtu};
    link.client = {client.gid, client.mac, client.qpn, client.psn, client.mtu};
    link.mtu = std::min(server.mtu, client.mtu);
    link.confirmed = !group.from_start;
    const auto first = [&](Psn psn) { return group.from_start ? std::optional(psn) : std::nullopt; };
    add_queue_pair(link.server, index, 0, true, first(client.psn));
    add_queue_pair(link.client, index, 0, false, first(server.psn));
}

void Dissector::add_queue_pair(const QpEnd& end, std::size_t group, std::size_t link, bool of_server,
                               std::optional<Psn> first) {
    const QpKey key{end.gid.normalised(), end.qpn};
    QueuePair qp{group, link, of_server, SendReassembly(first)};
    if (const auto unnamed = unnamed_.find(key); unnamed != unnamed_.end()) {
        // The packets of this queue pair that came before this CLC count as well.
        qp.flow = first ? qp.flow : unnamed->second.second;
        unnamed_.erase(unnamed);
    }
    queue_pairs_.insert_or_assign(key, std::move(qp));
}

}  // namespace smc::capture
