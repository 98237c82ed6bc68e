// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// LLC and CDC: from SENDs to links and cursors.
#include <algorithm>

#include "ctl/capture/dissector.h"

namespace smc::capture {

void Dissector::add_roce(const Packet& packet) {
    if (ways_.size() < kMaxWays) {
        ways_.emplace(gid_of(packet.from), gid_of(packet.to));
    }
    if (const auto answer = parse_rc_answer(packet.payload, packet.length)) {
        return add_answer(packet, *answer);
    }
    const auto request = parse_rc_request(packet.payload, packet.length);
    if (!request) {
        return;
    }
    const bool is_send = request->operation == RcRequest::Operation::kSend;
    counters_.cut_packets += is_send && request->cut ? 1 : 0;
    const auto found = queue_pairs_.find({gid_of(packet.to), request->destination});
    if (found == queue_pairs_.end()) {
        add_unnamed(packet, *request);
        return;
    }
    QueuePair& qp = found->second;
    const SendReassembly::Seen seen = qp.flow.accept(*request);
    counters_.retransmissions += seen == SendReassembly::Seen::kAgain ? 1 : 0;
    counters_.gaps += seen == SendReassembly::Seen::kAfterGap ? 1 : 0;
    tell_write(packet, *request, seen);
    const auto message = qp.flow.message();
    if (seen == SendReassembly::Seen::kAgain || !message) {
        return;
    }
    const Link& link = link_groups_[qp.group].links[qp.link];
    const QpEnd& to = qp.of_server ? link.server : link.client;
    const QpEnd& from = qp.of_server ? link.client : link.server;
    Event event{frame_->number, frame_->time_us, qp_text(from.gid, from.qpn), qp_text(to.gid, to.qpn),
                describe_send(*message)};
    if (event.message.layer == "CDC") {
        event.message.version = link_groups_[qp.group].version;  // CDC messages have no version of their own
    }
    sink_(event);
    if (!message->empty() && message->front() == cdc::kType) {
        if (const auto decoded = cdc::decode(*message); const auto* cdc = std::get_if<cdc::Message>(&decoded)) {
            read_cdc(qp, *cdc);
        }
    } else if (const auto decoded = llc::decode(*message); const auto* llc = std::get_if<llc::AnyMessage>(&decoded)) {
        const QueuePair at = qp;  // a copy: read_llc() may overwrite the entry
        read_llc(at, *llc);
    }
}

std::optional<std::pair<std::string, std::string>> Dissector::ends(const Packet& packet, Qpn to) const {
    const QpKey key{gid_of(packet.to), to};
    if (const auto found = queue_pairs_.find(key); found != queue_pairs_.end()) {
        const Link& link = link_groups_[found->second.group].links[found->second.link];
        const std::string server = qp_text(link.server.gid, link.server.qpn);
        const std::string client = qp_text(link.client.gid, link.client.qpn);
        return found->second.of_server ? std::pair(client, server) : std::pair(server, client);
    }
    if (const auto found = unnamed_.find(key); found != unnamed_.end()) {
        const UnnamedQp& qp = unnamed_qps_[found->second.first];
        return std::pair(qp_text(qp.peer, qp.peer_qpn), qp_text(qp.gid, qp.qpn));
    }
    return std::nullopt;
}

void Dissector::tell_write(const Packet& packet, const RcRequest& request, SendReassembly::Seen seen) {
    if (!rdma_ || request.operation != RcRequest::Operation::kWrite || !request.first) {
        return;
    }
    if (const auto who = ends(packet, request.destination)) {
        sink_({frame_->number, frame_->time_us, who->first, who->second,
               describe(request, seen == SendReassembly::Seen::kAgain)});
    }
}

void Dissector::add_answer(const Packet& packet, const RcAck& answer) {
    const auto who = ends(packet, answer.destination);
    if (!who) {
        return;
    }
    counters_.naks += answer.kind == RcAck::Kind::kNak ? 1 : 0;
    counters_.rnr_naks += answer.kind == RcAck::Kind::kRnrNak ? 1 : 0;
    if (rdma_) {
        sink_({frame_->number, frame_->time_us, who->first, who->second, describe(answer)});
    }
}

void Dissector::read_llc(const QueuePair& qp, const llc::AnyMessage& message) {
    LinkGroup& group = link_groups_[qp.group];
    if (const auto* confirm = std::get_if<llc::ConfirmLink>(&message)) {
        group.links[qp.link].number = confirm->link_number;
        group.links[qp.link].confirmed |= confirm->reply;
        // The flag tells about the sender's own RMBEs. Linux refuses peers that do not set it (see llc.h).
        (qp.of_server ? group.client_plain : group.server_plain) = !has_eye_catchers(*confirm);
    } else if (const auto* add = std::get_if<llc::AddLink>(&message)) {
        read_add_link(qp, *add);
    } else if (const auto* del = std::get_if<llc::DeleteLink>(&message)) {
        read_delete_link(qp, *del);
    }
}

// The server sends the request, the client replies. A client's request, of version 1, only invites the server to send
// one.
void Dissector::read_add_link(const QueuePair& qp, const llc::AddLink& add) {
    const std::size_t index = qp.group;
    LinkGroup& group = link_groups_[index];
    if (add.reply != qp.of_server) {
        return;
    }
    if (!add.reply) {
        adding_.insert_or_assign(index, add);
        return;
    }
    const auto asked = adding_.find(index);
    if (asked == adding_.end()) {
        return;
    }
    const llc::AddLink request = asked->second;
    adding_.erase(asked);
    if (add.rejected) {
        group.rejected_links++;
        group.rejection = text(add.reason);
        return;
    }
    if (group.links.size() == LinkGroup::kMaxLinks) {
        counters_.links_not_followed++;
        return;
    }
    Link link;
    link.number = request.link_number;
    link.server = {request.gid, request.mac, request.qpn, request.psn, request.mtu};
    link.client = {add.gid, add.mac, add.qpn, add.psn, add.mtu};
    link.mtu = std::min(request.mtu, add.mtu);
    group.links.push_back(link);
    add_queue_pair(link.server, index, group.links.size() - 1, true, add.psn);
    add_queue_pair(link.client, index, group.links.size() - 1, false, request.psn);
}

void Dissector::read_delete_link(const QueuePair& qp, const llc::DeleteLink& message) {
    if (message.reply) {
        return;
    }
    LinkGroup& group = link_groups_[qp.group];
    const std::string why = std::string(qp.of_server ? "client" : "server") + ", " + text(message.reason) +
                            (message.orderly ? ", orderly" : "");
    if (message.all && group.ended.empty()) {
        group.ended = why;
    }
    for (Link& link : group.links) {
        if (!message.all && link.number == message.link_number && link.deleted.empty()) {
            link.deleted = why;
        }
    }
}

void Dissector::read_cdc(const QueuePair& qp, const cdc::Message& message) {
    const auto found = tokens_.find({qp.group, qp.of_server, message.token});
    if (found == tokens_.end()) {
        counters_.cdc_without_connection++;
        return;
    }
    Connection& history = connections_[found->second];
    history.last_frame = frame_->number;
    history.reset_by_server.reset();
    link_groups_[qp.group].links[qp.link].confirmed = true;  // connections use confirmed links only
    Half& receiver = qp.of_server ? history.server_half : history.client_half;
    Half& sender = qp.of_server ? history.client_half : history.server_half;
    if ((message.flags & cdc::kFailoverValidation) != 0) {
        return;  // nothing else in such a message is valid
    }
    if (!receiver.producer) {
        const LinkGroup& group = link_groups_[qp.group];
        // If one side says that it has none, the other one counts from 0, too.
        const bool none = group.server_plain.value_or(false) || group.client_plain.value_or(false);
        const auto plain = none ? std::optional(true) : qp.of_server ? group.server_plain : group.client_plain;
        // If no CONFIRM LINK tells whether there are eye catchers: the consumer cursor of a peer that has them is 4
        // while nothing has been written to it.
        const bool guess = !sender.producer && message.consumer == cdc::Cursor{0, 4} && message.producer.count >= 4;
        const bool eye_catcher = plain ? !*plain : sender.producer ? sender.first_byte != 0 : guess;
        receiver.first_byte = eye_catcher ? 4 : 0;
        receiver.producer = cdc::Cursor{0, receiver.first_byte};
    }
    const std::uint32_t size = bytes_of(receiver.rmbe_size);
    const std::int64_t lap = size - receiver.first_byte;
    const cdc::Cursor last = *receiver.producer, now = message.producer;
    if (now.count >= receiver.first_byte && now.count < size) {
        // CDC messages may be missing or late, so only the distance that the cursor went counts.
        const std::int64_t moved =
            static_cast<std::int16_t>(now.wrap - last.wrap) * lap + now.count - std::int64_t{last.count};
        if (moved > 0) {
            receiver.received += static_cast<std::uint64_t>(moved);
            receiver.producer = now;
        }
        counters_.cdc_missing += moved > lap ? 1 : 0;
    }
    sender.closed |= (message.state & cdc::kConnectionClosed) != 0;
    if ((message.state & cdc::kAbnormalClose) != 0 && !history.aborted_by_server) {
        history.aborted_by_server = !qp.of_server;
    }
}

}  // namespace smc::capture
