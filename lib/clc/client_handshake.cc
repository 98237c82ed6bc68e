// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/clc/client_handshake.h"

#include <algorithm>

namespace smc::clc {

namespace {

// The address without the bits of the host (RFC 7609 A.2.2).
RoceGid network_of(RoceGid address, unsigned prefix_bits) {
    for (unsigned i = 0; i < address.bytes.size(); i++) {
        const unsigned bits = std::clamp(prefix_bits, 8 * i, 8 * i + 8) - 8 * i;
        address.bytes[i] = static_cast<std::uint8_t>(address.bytes[i] & 0xff00U >> bits);
    }
    return address;
}

// The number of the subnet. Peers compare it (RFC 7609 section 3.5.1.2: "IP subnet number"), and Linux sends it in the
// field that A.2.2 calls a mask.
Ipv4Mask subnet_number(const RoceGid& address, unsigned prefix_bits) {
    const RoceGid network = network_of(address, 96 + prefix_bits);
    std::uint32_t number = 0;
    for (std::size_t i = 12; i < network.bytes.size(); i++) {
        number = number << 8 | network.bytes[i];
    }
    return Ipv4Mask{number};
}

// The prefix of the TCP connection's own address comes first, then as many as fit (RFC 7609 A.2.2).
void add_prefixes(Subnet& subnet, const RoceOffer& roce) {
    const auto add = [&](const RoceGid& address, std::uint8_t bits) {
        const Ipv6Prefix prefix{network_of(address, bits), bits};
        if (std::ranges::find(subnet.prefixes, prefix) == subnet.prefixes.end()) {
            subnet.prefixes.push_back(prefix);
        }
    };
    add(roce.own_address, roce.prefix_bits);
    for (const Ipv6Prefix& other : roce.other_addresses) {
        add(other.prefix, other.length);
    }
}

}  // namespace

// H4: from here on every call returns no actions.
Actions ClientHandshake::finish(Outcome outcome) {
    state_ = State::kDone;
    deadline_ = kNever;
    return {Finish{std::move(outcome)}};
}

Actions ClientHandshake::decline(Reason reason, std::string detail, bool out_of_sync) {
    Decline d;
    d.version = answered_version_;
    d.has_types = d.version >= kVersion2;
    d.peer_id = node_.peer_id;
    d.reason = reason;
    d.out_of_sync = out_of_sync;
    Actions actions{Send{encode(d)}};
    actions.push_back(
        finish({.kind = Outcome::Kind::kFallBack, .reason = reason, .detail = std::move(detail)}).front());
    return actions;
}

// v2.1, Proposal V2 extension, note 2: the SEID is for SMC-D only.
bool ClientHandshake::offers_smcr_v2() const {
    return roce_ && roce_->v2 && !node_.ueids.empty();
}

V2Extension ClientHandshake::v2_extension() const {
    V2Extension v2;
    v2.features = kFeatureEmulatedIsm;
    for (const Eid& eid : node_.ueids) {
        v2.eids.push_back(eid);
    }
    if (smcd_offered_) {
        SmcdExtension& smcd = v2.smcd.emplace();
        if (node_.seid) {
            v2.seid_present = true;
            smcd.seid = *node_.seid;
        }
        for (const IsmDevice& device : node_.ism) {
            add_ism_device(smcd, device);
        }
    }
    if (offers_smcr_v2()) {
        v2.roce_gid = roce_->gids.front();
        v2.max_connections = node_.max_connections;
        v2.max_links = node_.max_links;
    }
    return v2;
}

Proposal ClientHandshake::proposal() const {
    Proposal p;
    const bool r_v2 = offers_smcr_v2();
    p.peer_id = node_.peer_id;
    if (smcd_offered_ || r_v2) {
        p.v2_offer = !smcd_offered_ ? Offer::kSmcR : r_v2 ? Offer::kBoth : Offer::kSmcD;
        p.v2 = v2_extension();
    }
    if (roce_) {
        p.mac = roce_->mac;
    }
    if (roce_ && roce_->v1) {
        p.v1_offer = Offer::kSmcR;
        p.v1_gid = roce_->v1_gid.is_zero() ? roce_->gids.front() : roce_->v1_gid;
        Subnet& subnet = p.subnet.emplace();
        if (roce_->own_address.is_v4()) {
            subnet.mask_bits = roce_->prefix_bits;
            subnet.mask = subnet_number(roce_->own_address, roce_->prefix_bits);
        } else {
            add_prefixes(subnet, *roce_);
        }
    }
    return p;
}

Actions ClientHandshake::start(TimePoint now) {
    state_ = State::kAwaitAccept;
    deadline_ = now + node_.step_timeout;  // H3
    return {Send{encode(proposal())}};
}

// H1: no Decline answers a Decline.
Actions ClientHandshake::peer_declined(Bytes bytes) {
    const auto decoded = decode_decline(bytes);
    if (const auto* bad = std::get_if<Fault>(&decoded)) {
        return fault(*bad);
    }
    Outcome outcome = declined_by_peer(std::get<Decline>(decoded));
    outcome.smcr = smcr_;
    return finish(std::move(outcome));
}

Actions ClientHandshake::message(Bytes bytes) {
    if (state_ != State::kAwaitAccept && state_ != State::kLinking) {
        return {};
    }
    if (type_of(bytes) == Type::kDecline) {
        return peer_declined(bytes);
    }
    if (state_ == State::kLinking) {
        return fault(wrong_type(bytes, "nothing but a Decline after the Confirm"));  // H2
    }
    if (const auto header = decode_header(bytes.first(std::min(bytes.size(), kHeaderBytes)));
        const auto* h = std::get_if<Header>(&header)) {
        answered_version_ = std::min(h->version, kVersion2);
    }
    const auto decoded = decode_acceptance(bytes, Type::kAccept);
    if (const auto* bad = std::get_if<Fault>(&decoded)) {
        return fault(*bad);
    }
    const auto& acceptance = std::get<Acceptance>(decoded);
    if (const auto* smcd = std::get_if<AcceptD>(&acceptance);
        smcd != nullptr && smcd_offered_ && smcd->version >= kVersion2) {
        return accept(*smcd);
    }
    const auto* smcr = std::get_if<AcceptR>(&acceptance);
    if (smcr != nullptr && roce_ && (smcr->version >= kVersion2 ? offers_smcr_v2() : roce_->v1)) {
        return accept(*smcr);
    }
    return fault(wrong_variant(acceptance, "a type that was offered"));
}

Actions ClientHandshake::accept(const AcceptD& a) {
    if (a.fce && a.fce->release > kRelease1) {
        return decline(Reason::kReleaseMismatch, "Accept has a higher release than the Proposal");
    }
    // Emulated-ISM exists from release 1 on, and only where both feature bits are set.
    if (a.fce && (a.fce->release < kRelease1 || (a.fce->features & kFeatureEmulatedIsm) == 0)) {
        return decline(Reason::kReleaseMismatch, "server accepted without the Emulated-ISM feature");
    }
    const IsmDevice* const own = node_.ism_on(a.chid);
    if (own == nullptr) {
        return decline(Reason::kNoSmcdV2Device, "server chose CHID " + smc::text(a.chid));
    }
    if (join(a.gid, a.gid_part2) == own->gid) {
        return decline(Reason::kNoSmcdV2Device, "server has this node's own GID");
    }
    const bool offered = std::find(node_.ueids.begin(), node_.ueids.end(), a.eid) != node_.ueids.end();
    if (!offered && a.eid != node_.seid) {
        return decline(Reason::kNoUeid, "server chose EID " + a.eid.text());
    }
    if (a.dmbe_index != 0) {
        return decline(Reason::kInternal, "server wants several elements in one DMB");
    }
    smcd_.gid = join(a.gid, a.gid_part2);
    smcd_.chid = a.chid;
    smcd_.eid = a.eid;
    smcd_.token = a.token;
    smcd_.dmb_size = a.dmbe_size;
    smcd_.first_contact = a.first_contact;
    smcd_.release = a.fce ? a.fce->release : kRelease1;
    if (a.fce) {
        smcd_.host_name = a.fce->host_name.text();
    }
    state_ = State::kAttaching;
    return {AttachDmb{smcd_}};
}

Actions ClientHandshake::accept(const AcceptR& a) {
    SmcrPeer& p = smcr_;
    p.version = std::min(a.version, kVersion2);
    if (p.version >= kVersion2) {
        if (std::find(node_.ueids.begin(), node_.ueids.end(), a.eid) == node_.ueids.end()) {
            return decline(Reason::kNoUeid, "server chose EID " + a.eid.text());
        }
        if (a.fce && a.fce->release > kRelease1) {
            return decline(Reason::kReleaseMismatch, "Accept has a higher release than the Proposal");
        }
        if (a.gid.is_v4() != roce_->gids.front().is_v4()) {
            return decline(Reason::kNoSmcrDevice, "server has a GID of the other family, " + a.gid.text());
        }
        if (a.first_contact && !a.fce) {
            return fault(wire::fault_at<Header, &Header::length>(0, 0, "a First Contact Extension"));
        }
    }
    if (a.rmbe_index == 0) {
        return fault(wire::fault_at<wire::AcceptSmcrV1, &AcceptR::rmbe_index>(0, 0, "1 to 255"));
    }
    p.id = a.peer_id;
    p.link = {a.gid.normalised(), a.mac, a.qpn, a.psn, a.mtu};
    p.rmbe = {a.rkey, a.rmb_address, a.rmbe_index, a.alert_token, a.rmbe_size};
    p.eid = a.eid;
    p.first_contact = a.first_contact;
    if (a.fce) {
        p.link_type = a.fce->link_type;
        p.release = a.fce->release;
        p.os = a.fce->os;
        p.host_name = a.fce->host_name.text();
        if (p.release >= kRelease1) {
            p.max_connections = a.fce->max_connections;
            p.max_links = a.fce->max_links;
            p.features = a.fce->features & kFeatureEmulatedIsm;
            if (p.max_connections < kFewestConnections) {
                return decline(Reason::kMaxConnectionsMismatch, "server allows " + std::to_string(p.max_connections));
            }
            if (p.max_links < 1 || p.max_links > node_.max_links) {
                return decline(Reason::kMaxLinksMismatch, "server allows " + std::to_string(p.max_links));
            }
        }
    }
    if (p.version < kVersion2 || p.release < kRelease1) {
        p.max_links = kUnnegotiatedLinks;  // the server will try to add a second link
    }
    state_ = State::kPreparing;
    return {PrepareRmbe{p}};
}

Actions ClientHandshake::rmbe_ready(const LocalRmbe& own, TimePoint now) {
    if (state_ != State::kPreparing) {
        return {};
    }
    state_ = State::kLinking;
    deadline_ = now + 2 * node_.step_timeout;  // LLC has its own time-outs; this one is for what they do not cover
    return {Send{encode(own_half(Type::kConfirm, node_, *roce_, smcr_, own))}, AwaitLink{smcr_}};
}

Actions ClientHandshake::prepare_failed(Reason reason, std::string detail) {
    return state_ == State::kPreparing ? decline(reason, std::move(detail), reason == Reason::kOutOfSync) : Actions{};
}

std::optional<Message> ClientHandshake::give_up(Reason reason) {
    const bool due = state_ == State::kPreparing || state_ == State::kAttaching;
    return due ? std::optional(std::get<Send>(decline(reason, {}).front()).message) : std::nullopt;
}

Actions ClientHandshake::link_ready() {
    return state_ == State::kLinking ? finish({.kind = Outcome::Kind::kSmcR, .smcr = smcr_}) : Actions{};
}

Actions ClientHandshake::link_refused(Reason reason, std::string detail) {
    return state_ == State::kLinking ? decline(reason, std::move(detail)) : Actions{};
}

Actions ClientHandshake::link_failed(Reason reason, std::string detail) {
    return state_ == State::kLinking ? finish({.reason = reason, .detail = std::move(detail), .smcr = smcr_})
                                     : Actions{};
}

Actions ClientHandshake::attached(const LocalDmb& own, bool in_sync) {
    if (state_ != State::kAttaching) {
        return {};
    }
    if (!in_sync) {
        return decline(Reason::kOutOfSync, "the server says subsequent contact, but no such link group is known here",
                       true);
    }
    Actions actions{Send{encode(own_half(Type::kConfirm, node_, smcd_, own))}};
    actions.push_back(finish({.kind = Outcome::Kind::kSmcD, .smcd = smcd_}).front());
    return actions;
}

Actions ClientHandshake::attach_failed(Reason reason, std::string detail) {
    return state_ == State::kAttaching ? decline(reason, std::move(detail)) : Actions{};
}

// H2.
Actions ClientHandshake::fault(const Fault& bad) {
    if (state_ != State::kAwaitAccept && state_ != State::kLinking) {
        return {};
    }
    if (bad.verdict == Verdict::kDecline && state_ == State::kAwaitAccept) {
        return decline(Reason::kVersionMismatch, bad.text());
    }
    return finish({.reason = Reason::kProtocolError, .detail = bad.text()});
}

Actions ClientHandshake::peer_closed() {
    return state_ == State::kDone ? Actions{} : finish({.reason = Reason::kPeerClosed});
}

Actions ClientHandshake::tick(TimePoint now) {
    if (state_ == State::kDone || now < deadline_) {
        return {};
    }
    return finish({.reason = Reason::kHandshakeTimeout,
                   .detail = state_ == State::kLinking ? "waiting for the link" : "waiting for Accept"});
}

}  // namespace smc::clc
