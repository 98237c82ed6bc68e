// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Selects the TCP connections that are searched for CLC.
#include "ctl/capture/dissector.h"
#include "smc/wire/tcp_option.h"

namespace smc::capture {

// The type of the whole CLC message at the start of a segment; nullopt: there is none. Application data does not decode
// as one.
std::optional<clc::Type> Dissector::whole_message(Bytes payload) {
    if (payload.size() < clc::kHeaderBytes) {
        return std::nullopt;
    }
    const auto header = clc::decode_header(payload.first(clc::kHeaderBytes));
    const auto* known = std::get_if<clc::Header>(&header);
    if (known == nullptr || known->length > payload.size() ||
        !std::holds_alternative<clc::AnyMessage>(clc::decode(payload.first(known->length)))) {
        return std::nullopt;
    }
    return known->type;
}

// nullptr: too many connections.
Dissector::Followed* Dissector::follow(const Endpoint& client, const Endpoint& server) {
    if (connections_.size() == kMaxConnections) {
        counters_.connections_not_followed++;
        return nullptr;
    }
    Connection& connection = connections_.emplace_back();
    connection.client = client;
    connection.server = server;
    connection.first_frame = frame_->number;
    Followed followed;
    followed.history = connections_.size() - 1;
    return &followed_.insert_or_assign({client, server}, std::move(followed)).first->second;
}

void Dissector::open(const Packet& syn) {
    const auto key = std::pair(syn.from, syn.to);
    const auto known = followed_.find(key);
    if (known != followed_.end() && known->second.client_first == syn.sequence) {
        connections_[known->second.history].from_start = true;
        return;  // a repeated SYN, or one that was captured after its SYN-ACK
    }
    if (known != followed_.end()) {
        followed_.erase(known);
    }
    followed_.erase(std::pair(syn.to, syn.from));  // an earlier connection in the other direction on the same ports
    plain_.erase(key);
    plain_.erase(std::pair(syn.to, syn.from));
    if (!tcp::find_smc_option(syn.options)) {
        counters_.cut_syns += syn.options_cut ? 1 : 0;
        if (!syn.options_cut && plain_.size() < kMaxConnections) {
            plain_.insert(key);
        }
        return;
    }
    if (Followed* followed = follow(syn.from, syn.to)) {
        followed->client_first = syn.sequence;
        followed->client = TcpStream(syn.sequence + 1);
    }
}

// Opens a connection whose SYN is not in the capture, by its SYN-ACK or by a segment that is a CLC message.
void Dissector::open_late(const Packet& packet) {
    const bool syn_ack = (packet.flags & kSyn) != 0;
    const auto message = syn_ack ? std::nullopt : whole_message(packet.payload);
    if (!message && (!syn_ack || !tcp::find_smc_option(packet.options))) {
        return;
    }
    // Client and server may send a Decline. The lower port is nearly always the server's.
    const bool from_server = syn_ack || message == clc::Type::kAccept ||
                             (message == clc::Type::kDecline && packet.from.port < packet.to.port);
    const Endpoint& client = from_server ? packet.to : packet.from;
    const Endpoint& server = from_server ? packet.from : packet.to;
    if (plain_.contains({client, server}) || plain_.contains({server, client})) {
        return;
    }
    Followed* followed = follow(client, server);
    if (followed == nullptr) {
        return;
    }
    Connection& history = connections_[followed->history];
    history.from_start = false;
    if (syn_ack) {
        followed->client_first = packet.acknowledgment - 1;
        followed->client = TcpStream(packet.acknowledgment);
        return;
    }
    followed->client = TcpStream(from_server ? packet.acknowledgment : packet.sequence);
    followed->server = TcpStream(from_server ? packet.sequence : packet.acknowledgment);
    followed->join_client = followed->join_server = true;
    // CLC is spoken only if client and server have sent the option.
    history.server_answered = history.server_has_option = history.has_hole = true;
}

}  // namespace smc::capture
