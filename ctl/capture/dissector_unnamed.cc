// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// SENDs to queue pairs that no captured CLC names: the capture began late, or has one direction only.
#include <algorithm>

#include "ctl/capture/dissector.h"

namespace smc::capture {

namespace {

// Other protocols send messages of 44 bytes, too. A CDC message has 22 reserved bytes, which are zero; in an LLC
// message, type and length must fit together.
bool looks_like_smc(wire::Bytes message) {
    if (const auto decoded = cdc::decode(message); const auto* cdc = std::get_if<cdc::Message>(&decoded)) {
        return std::ranges::equal(encode(*cdc).view(), message);
    }
    return std::holds_alternative<llc::AnyMessage>(llc::decode(message));
}

}  // namespace

bool Dissector::only_to(const RoceGid& to, const RoceGid& from) const {
    return ways_.contains({from.normalised(), to.normalised()}) &&
           !ways_.contains({to.normalised(), from.normalised()});
}

// A queue pair counts as one of SMC from the first packet on that holds a whole SMC message.
void Dissector::add_unnamed(const Packet& packet, const RcRequest& request) {
    const bool is_send = request.operation == RcRequest::Operation::kSend;
    const QpKey key{gid_of(packet.to), request.destination};
    auto found = unnamed_.find(key);
    if (found == unnamed_.end()) {
        const bool single = is_send && request.first && request.last && !request.cut;
        if (!single || unnamed_qps_.size() == kMaxUnnamedQps || !looks_like_smc(request.payload)) {
            counters_.sends_to_unknown_qps += is_send ? 1 : 0;
            return;
        }
        found = unnamed_.emplace(key, std::pair(unnamed_qps_.size(), SendReassembly(std::nullopt))).first;
        UnnamedQp& qp = unnamed_qps_.emplace_back();
        qp.gid = key.first;
        qp.qpn = key.second;
        qp.peer = gid_of(packet.from);
        qp.first_frame = frame_->number;
    }
    SendReassembly& flow = found->second.second;
    const SendReassembly::Seen seen = flow.accept(request);
    counters_.retransmissions += seen == SendReassembly::Seen::kAgain ? 1 : 0;
    counters_.gaps += seen == SendReassembly::Seen::kAfterGap ? 1 : 0;
    tell_write(packet, request, seen);
    const auto message = flow.message();
    if (seen == SendReassembly::Seen::kAgain || !message) {
        return;
    }
    read_unnamed(unnamed_qps_[found->second.first], *message);
}

void Dissector::read_unnamed(UnnamedQp& qp, wire::Bytes message) {
    qp.last_frame = frame_->number;
    Event event{frame_->number, frame_->time_us, {}, qp_text(qp.gid, qp.qpn), describe_send(message)};
    if (event.message.layer == "CDC") {
        qp.cdc++;
        const auto decoded = cdc::decode(message);
        if (const auto* cdc = std::get_if<cdc::Message>(&decoded);
            cdc != nullptr && qp.tokens.size() < UnnamedQp::kMaxTokens) {
            qp.tokens.insert(cdc->token);
        }
        event.message.version = qp.version;  // CDC messages have no version of their own
    } else {
        qp.llc++;
        const auto decoded = llc::decode(message);
        if (const auto* any = std::get_if<llc::AnyMessage>(&decoded)) {
            qp.version = event.message.version;
            if (const auto* confirm = std::get_if<llc::ConfirmLink>(any)) {
                qp.peer_qpn = confirm->qpn;
            }
        }
    }
    event.from = qp_text(qp.peer, qp.peer_qpn);
    sink_(event);
}

}  // namespace smc::capture
