// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/ctl/capture/dissector.h"

#include <algorithm>

#include "smc/tcp_option.h"

namespace smc::capture {

namespace {

RoceGid gid_of(const Endpoint& endpoint) {
    return RoceGid{endpoint.ip};
}

std::string qp_text(const Link::End& end) {
    const RoceGid gid = end.gid.normalised();
    return Endpoint{gid.bytes, 0}.ip_text() + " qp " + text(end.qpn);
}

}  // namespace

void Dissector::add(const Frame& frame) {
    frame_ = &frame;
    if (const auto packet = parse_packet(frame.link_type, frame.bytes)) {
        if (packet->transport == Transport::kTcp) {
            add_tcp(*packet);
        } else if (packet->to.port == kRoceV2Port) {
            add_roce(*packet);
        }
    }
}

void Dissector::open(const Packet& syn) {
    const auto key = std::pair(syn.from, syn.to);
    const auto known = followed_.find(key);
    if (known != followed_.end() && known->second.client_first == syn.sequence) {
        return;  // the SYN again
    }
    if (known != followed_.end()) {
        followed_.erase(known);
    }
    if (!tcp::find_smc_option(syn.options)) {
        return;
    }
    if (connections_.size() == kMaxConnections) {
        counters_.connections_not_followed++;
        return;
    }
    Followed followed;
    followed.story = connections_.size();
    followed.client_first = syn.sequence;
    followed.client = TcpStream(syn.sequence + 1);
    followed_.emplace(key, std::move(followed));
    Connection& connection = connections_.emplace_back();
    connection.client = syn.from;
    connection.server = syn.to;
    connection.first_frame = frame_->number;
}

void Dissector::add_tcp(const Packet& packet) {
    if ((packet.flags & (kSyn | kAck)) == kSyn) {
        open(packet);
    }
    auto found = followed_.find(std::pair(packet.from, packet.to));
    const bool from_server = found == followed_.end();
    if (from_server) {
        found = followed_.find(std::pair(packet.to, packet.from));
    }
    if (found == followed_.end()) {
        return;
    }
    Followed& followed = found->second;
    Connection& story = connections_[followed.story];
    story.last_frame = frame_->number;
    if (from_server && (packet.flags & kSyn) != 0) {
        story.server_answered = true;
        if (!story.server_has_option && tcp::find_smc_option(packet.options)) {
            story.server_has_option = true;
            followed.server = TcpStream(packet.sequence + 1);
            followed.server_stopped = false;
        }
        return;
    }
    (from_server ? followed.server : followed.client).add(packet.sequence, packet.payload);
    read_clc(followed, from_server);
    (from_server ? story.server_fin : story.client_fin) |= (packet.flags & kFin) != 0;
    if ((packet.flags & kRst) != 0 && !story.reset_by_server) {
        story.reset_by_server = from_server;
    }
}

void Dissector::read_clc(Followed& followed, bool of_server) {
    TcpStream& stream = of_server ? followed.server : followed.client;
    bool& stopped = of_server ? followed.server_stopped : followed.client_stopped;
    while (!stopped && connections_[followed.story].server_has_option && stream.ready().size() >= clc::kHeaderBytes) {
        Connection& story = connections_[followed.story];
        const auto header = clc::decode_header(stream.ready().first(clc::kHeaderBytes));
        const auto* known = std::get_if<clc::Header>(&header);
        const std::size_t length = known != nullptr ? known->length : clc::kHeaderBytes;
        if (stream.ready().size() < length) {
            return;
        }
        const Bytes message = stream.ready().first(length);
        const Endpoint& from = of_server ? story.server : story.client;
        const Endpoint& to = of_server ? story.client : story.server;
        sink_({frame_->number, frame_->time_us, from.text(), to.text(), describe_clc(message)});
        const auto decoded = clc::decode(message);
        if (const auto* fault = std::get_if<Fault>(&decoded)) {
            story.broken = "no CLC message from the " + std::string(of_server ? "server" : "client") + ": " + fault->text() +
                           ": " + text(fault->verdict);
            stopped = true;
            return;
        }
        learn(followed, of_server, std::get<clc::AnyMessage>(decoded));
        stream.take(length);
    }
}

void Dissector::learn(Followed& followed, bool from_server, const clc::AnyMessage& message) {
    Connection& story = connections_[followed.story];
    if (const auto* proposal = std::get_if<clc::Proposal>(&message)) {
        story.proposal = *proposal;
        return;
    }
    if (const auto* decline = std::get_if<clc::Decline>(&message)) {
        story.decline = {*decline, from_server, story.confirm.has_value()};
        followed.client_stopped = followed.server_stopped = true;  // what follows is the application's
        return;
    }
    const auto* smcr = std::get_if<clc::AcceptR>(&message);
    const clc::Acceptance half = smcr != nullptr ? clc::Acceptance(*smcr) : clc::Acceptance(std::get<clc::AcceptD>(message));
    const clc::Type type = std::visit([](const auto& h) { return h.type; }, half);
    if (type == clc::Type::kAccept) {
        learn_accept(followed.story, half);
    } else {
        learn_confirm(followed.story, half);
    }
}

std::optional<std::size_t> Dissector::group_of(const Link::End& server) const {
    const auto found = queue_pairs_.find({server.gid.normalised(), server.qpn});
    return found != queue_pairs_.end() && found->second.of_server ? std::optional(found->second.group) : std::nullopt;
}

// The server's half of a subsequent contact can be written to from here on: the client's data may overtake its
// Confirm (RFC 7609 3.5.2.4).
void Dissector::learn_accept(std::size_t index, const clc::Acceptance& accept) {
    Connection& story = connections_[index];
    story.accept = accept;
    const auto* smcr = std::get_if<clc::AcceptR>(&accept);
    if (smcr == nullptr) {
        return;
    }
    story.server_half.token = smcr->alert_token;
    story.server_half.rmbe_size = smcr->rmbe_size;
    if (!smcr->first_contact) {
        story.link_group = group_of({smcr->gid, smcr->qpn});
        if (story.link_group) {
            tokens_[{*story.link_group, true, smcr->alert_token}] = index;
        }
    }
}

void Dissector::learn_confirm(std::size_t index, const clc::Acceptance& confirm) {
    Connection& story = connections_[index];
    story.confirm = confirm;
    const auto* client = std::get_if<clc::AcceptR>(&confirm);
    const auto* server = story.accept ? std::get_if<clc::AcceptR>(&*story.accept) : nullptr;
    if (client == nullptr || server == nullptr) {
        return;
    }
    story.client_half.token = client->alert_token;
    story.client_half.rmbe_size = client->rmbe_size;
    if (!story.link_group && server->first_contact) {
        story.link_group = link_groups_.size();
        LinkGroup& group = link_groups_.emplace_back();
        group.variant = chosen(*story.accept, story.proposal);
        group.version = server->version;
        group.server = server->peer_id;
        group.client = client->peer_id;
        group.server_host = server->fce ? server->fce->host_name.text() : "";
        group.client_host = client->fce ? client->fce->host_name.text() : "";
        Link& link = group.links.emplace_back();
        link.server = {server->gid, server->qpn};
        link.client = {client->gid, client->qpn};
        link.mtu = std::min(server->mtu, client->mtu);
        add_queue_pair(link.server, *story.link_group, 0, true, client->psn);
        add_queue_pair(link.client, *story.link_group, 0, false, server->psn);
    }
    if (story.link_group) {
        tokens_[{*story.link_group, true, server->alert_token}] = index;
        tokens_[{*story.link_group, false, client->alert_token}] = index;
    }
}

void Dissector::add_queue_pair(const Link::End& end, std::size_t group, std::size_t link, bool of_server, Psn first) {
    queue_pairs_.insert_or_assign({end.gid.normalised(), end.qpn}, QueuePair{group, link, of_server, SendFlow(first)});
}

void Dissector::add_roce(const Packet& packet) {
    const auto request = parse_rc_request(packet.payload, packet.length);
    if (!request) {
        return;
    }
    const auto found = queue_pairs_.find({gid_of(packet.to).normalised(), request->destination});
    if (found == queue_pairs_.end()) {
        counters_.sends_to_unknown_qps += request->operation == RcRequest::Operation::kSend ? 1 : 0;
        return;
    }
    QueuePair& qp = found->second;
    const SendFlow::Seen seen = qp.flow.accept(*request);
    counters_.retransmissions += seen == SendFlow::Seen::kAgain ? 1 : 0;
    counters_.gaps += seen == SendFlow::Seen::kAfterGap ? 1 : 0;
    const auto message = qp.flow.message();
    if (seen == SendFlow::Seen::kAgain || !message) {
        return;
    }
    const Link& link = link_groups_[qp.group].links[qp.link];
    const Link::End& to = qp.of_server ? link.server : link.client;
    const Link::End& from = qp.of_server ? link.client : link.server;
    Event event{frame_->number, frame_->time_us, qp_text(from), qp_text(to), describe_send(*message)};
    if (event.message.layer == "CDC") {
        event.message.version = link_groups_[qp.group].version;  // CDC messages have no version of their own
    }
    sink_(event);
    if (!message->empty() && message->front() == cdc::kType) {
        if (const auto decoded = cdc::decode(*message); const auto* cdc = std::get_if<cdc::Message>(&decoded)) {
            read_cdc(qp, *cdc);
        }
    } else if (const auto decoded = llc::decode(*message); const auto* llc = std::get_if<llc::AnyMessage>(&decoded)) {
        read_llc(qp, *llc);
    }
}

void Dissector::read_llc(const QueuePair& qp, const llc::AnyMessage& message) {
    LinkGroup& group = link_groups_[qp.group];
    if (const auto* confirm = std::get_if<llc::ConfirmLink>(&message)) {
        group.links[qp.link].number = confirm->link_number;
        group.links[qp.link].confirmed |= confirm->reply;
        return;
    }
    if (const auto* add = std::get_if<llc::AddLink>(&message)) {
        if (!add->reply) {
            adding_.insert_or_assign(qp.group, *add);
            return;
        }
        const auto asked = adding_.find(qp.group);
        if (asked == adding_.end()) {
            return;
        }
        if (add->rejected) {
            group.events.push_back("ADD LINK rejected by the client: " + text(add->reason));
        } else {
            const llc::AddLink& request = asked->second;
            Link link;
            link.number = request.link_number;
            link.server = {request.gid, request.qpn};
            link.client = {add->gid, add->qpn};
            link.mtu = std::min(request.mtu, add->mtu);
            group.links.push_back(link);
            add_queue_pair(link.server, qp.group, group.links.size() - 1, true, add->psn);
            add_queue_pair(link.client, qp.group, group.links.size() - 1, false, request.psn);
        }
        adding_.erase(asked);
        return;
    }
    if (const auto* del = std::get_if<llc::DeleteLink>(&message)) {
        if (del->reply) {
            return;
        }
        const std::string why = std::string(qp.of_server ? "client" : "server") + ", " + text(del->reason) +
                                (del->orderly ? ", orderly" : "");
        if (del->all) {
            group.ended = group.ended ? group.ended : why;
        }
        for (Link& link : group.links) {
            if (!del->all && link.number == del->link_number && !link.deleted) {
                link.deleted = why;
            }
        }
    }
}

void Dissector::read_cdc(const QueuePair& qp, const cdc::Message& message) {
    const auto found = tokens_.find({qp.group, qp.of_server, message.token});
    if (found == tokens_.end()) {
        counters_.cdc_without_connection++;
        return;
    }
    Connection& story = connections_[found->second];
    story.last_frame = frame_->number;
    Half& receiver = qp.of_server ? story.server_half : story.client_half;
    Half& sender = qp.of_server ? story.client_half : story.server_half;
    if ((message.flags & cdc::kFailoverValidation) != 0) {
        return;  // nothing else in it counts
    }
    const std::uint32_t size = bytes_of(receiver.rmbe_size);
    if (!receiver.producer) {
        // Nothing is consumed yet when a peer sends its first message, or has just been: a cursor below 4 is Linux's.
        const bool eye_catcher = message.consumer.wrap == 0 && message.consumer.count == 4 && message.producer.count >= 4;
        receiver.first_byte = eye_catcher ? 4 : 0;
        receiver.producer = cdc::Cursor{0, receiver.first_byte};
    }
    // The area of a wrap has first_byte bytes less than the element.
    const std::uint32_t usable = size - receiver.first_byte;
    const auto behind = [&](cdc::Cursor c) { return cdc::Cursor{c.wrap, c.count - receiver.first_byte}; };
    const std::uint32_t moved = cdc::distance(behind(*receiver.producer), behind(message.producer), usable);
    if (message.producer.count >= receiver.first_byte && moved <= usable) {
        receiver.received += moved;
        receiver.producer = message.producer;
    }
    sender.sending_done |= (message.state & cdc::kSendingDone) != 0;
    sender.closed |= (message.state & cdc::kConnectionClosed) != 0;
    sender.aborted |= (message.state & cdc::kAbnormalClose) != 0;
}

}  // namespace smc::capture
