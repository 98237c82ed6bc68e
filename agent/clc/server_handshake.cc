// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <algorithm>

#include "agent/clc/handshake.h"

namespace smc::clc {

namespace {

// The client's order decides (it proposes), UEIDs before the SEID.
std::optional<Eid> common_eid(const V2Extension& v2, const LocalNode& node) {
    for (const Eid& eid : v2.eids) {
        if (std::find(node.ueids.begin(), node.ueids.end(), eid) != node.ueids.end()) {
            return eid;
        }
    }
    if (v2.seid_present && v2.smcd && node.seid == v2.smcd->seid) {
        return node.seid;
    }
    return std::nullopt;
}

}  // namespace

Actions ServerHandshake::finish(Outcome outcome) {
    state_ = State::kDone;
    return {Finish{std::move(outcome)}};
}

// In lieu of Accept: with a reason for each type that was offered (v2.1, Decline, note 3).
Actions ServerHandshake::decline(Reason reason, std::string detail) {
    Decline d;
    d.version = std::min(proposal_.version, kVersion2);
    d.has_types = d.version == kVersion2;
    d.peer_id = node_.peer_id;
    d.reason = reason;
    d.smcd_v2 = offers_d(proposal_.v2_offer) ? reason : Reason::kNone;
    d.smcr_v2 = offers_r(proposal_.v2_offer) ? Reason::kNoSmcrDevice : Reason::kNone;
    d.smcd_v1 = offers_d(proposal_.v1_offer) ? Reason::kNoSmcdDevice : Reason::kNone;
    d.smcr_v1 = offers_r(proposal_.v1_offer) ? Reason::kNoSmcrDevice : Reason::kNone;
    Actions actions{Send{encode(d)}};
    actions.push_back(
        finish({Outcome::Kind::kFallBack, reason, std::move(detail), false, {}}).front());
    return actions;
}

Actions ServerHandshake::message(Bytes bytes, TimePoint now) {
    if (state_ == State::kAwaitProposal) {
        const auto decoded = decode_proposal(bytes);
        if (const auto* bad = std::get_if<Fault>(&decoded)) {
            return fault(*bad);
        }
        proposal_ = std::get<Proposal>(decoded);
        deadline_ = now + node_.step_timeout;
        return propose(proposal_);
    }
    if (state_ != State::kAwaitConfirm) {
        return {};
    }
    const auto header = decode_header(bytes.first(std::min(bytes.size(), kHeaderBytes)));
    if (const auto* h = std::get_if<Header>(&header); h != nullptr && h->type == Type::kDecline) {
        const auto decoded = decode_decline(bytes);
        if (const auto* bad = std::get_if<Fault>(&decoded)) {
            return fault(*bad);
        }
        const auto& d = std::get<Decline>(decoded);
        return finish({Outcome::Kind::kFallBack, Reason::kPeerDeclined,
                       "peer's reason " + reason_name(d.reason), d.out_of_sync, peer_});
    }
    const auto decoded = decode_acceptance(bytes, Type::kConfirm);
    if (const auto* bad = std::get_if<Fault>(&decoded)) {
        return fault(*bad);
    }
    const auto* smcd = std::get_if<AcceptD>(&std::get<Acceptance>(decoded));
    if (smcd == nullptr || smcd->version < kVersion2) {
        return fault({"eye_catcher", 0, kEyeCatcherR, "SMC-Dv2, as accepted"});
    }
    return confirm(*smcd);
}

Actions ServerHandshake::propose(const Proposal& p) {
    if (p.version < kVersion2) {
        return decline(Reason::kVersionMismatch, "client offers SMC version 1 only");
    }
    if (!offers_d(p.v2_offer) || !p.v2) {
        return decline(Reason::kModeMismatch, "client does not offer SMC-Dv2");
    }
    const V2Extension& v2 = *p.v2;
    if (!v2.smcd) {
        return decline(Reason::kNoSmcdV2Extension, "Proposal has no SMC-Dv2 extension");
    }
    // A release 0 client cannot know Emulated-ISM; a reserved CHID does not match for it.
    const bool emulated = v2.release >= kRelease1 && (v2.features & kFeatureEmulatedIsm) != 0;
    const auto gid = emulated ? extended_gid(*v2.smcd, node_.chid) : std::nullopt;
    if (!gid) {
        return decline(Reason::kNoSmcdV2Device, "no ISM fabric in common");
    }
    const auto eid = common_eid(v2, node_);
    if (!eid) {
        return decline(!v2.eids.empty() ? Reason::kNoUeid : Reason::kNoSeid, "no EID in common");
    }
    peer_.gid = *gid;
    peer_.chid = node_.chid;
    peer_.eid = *eid;
    peer_.release = kRelease1;  // ours, or lower if the client's were lower
    state_ = State::kPreparing;
    return {CreateDmb{peer_.gid}};
}

Actions ServerHandshake::dmb_ready(const LocalDmb& own,
                                   bool first_contact,
                                   std::uint32_t link_id,
                                   TimePoint now) {
    if (state_ != State::kPreparing) {
        return {};
    }
    own_ = own;
    link_id_ = link_id;
    peer_.first_contact = first_contact;
    return accept_if_prepared(now);
}

Actions ServerHandshake::dmb_failed(Reason reason, std::string detail) {
    return state_ == State::kPreparing ? decline(reason, std::move(detail)) : Actions{};
}

Actions ServerHandshake::application_ready(TimePoint now) {
    application_ready_ = true;
    return accept_if_prepared(now);
}

Actions ServerHandshake::application_refused() {
    if (state_ == State::kDone) {
        return {};
    }
    return finish({Outcome::Kind::kTerminate, Reason::kServerRefused, {}, false, {}});
}

Actions ServerHandshake::accept_if_prepared(TimePoint now) {
    if (state_ != State::kPreparing || !own_ || !application_ready_) {
        return {};
    }
    AcceptD a = own_half(Type::kAccept, node_, peer_, *own_);
    a.link_id = link_id_;
    state_ = State::kAwaitConfirm;
    deadline_ = now + node_.step_timeout;
    return {Send{encode(a)}};
}

Actions ServerHandshake::confirm(const AcceptD& c) {
    const char* wrong = join(c.gid, c.gid_part2) != peer_.gid                        ? "GID"
                        : c.chid != peer_.chid                    ? "CHID"
                        : c.eid != peer_.eid                      ? "EID"
                        : c.first_contact != peer_.first_contact  ? "first contact flag"
                        : c.dmbe_index != 0                       ? "DMBE index"
                        : c.fce && c.fce->release != peer_.release ? "release"
                                                                  : nullptr;
    if (wrong != nullptr) {
        return finish({Outcome::Kind::kTerminate, Reason::kProtocolError,
                       std::string("Confirm does not repeat the Accept: ") + wrong, false, {}});
    }
    if (c.fce && c.fce->features != kFeatureEmulatedIsm) {
        // v2.1, "Feature negotiation", item 5: a violation that is told by a late Decline
        proposal_ = {};  // a late Decline has no reasons by type (v2.1, Decline, note 4)
        proposal_.v2_offer = Offer::kNone;
        Actions actions = decline(Reason::kReleaseMismatch, "Confirm has other features than agreed");
        std::get<Finish>(actions.back()).outcome.kind = Outcome::Kind::kTerminate;
        return actions;
    }
    peer_.token = c.token;
    peer_.dmb_size = c.dmbe_size;
    if (c.fce) {
        peer_.host_name = c.fce->host_name.text();
    }
    state_ = State::kAttaching;
    return {AttachDmb{peer_}};
}

Actions ServerHandshake::attached() {
    if (state_ != State::kAttaching) {
        return {};
    }
    return finish({Outcome::Kind::kSmcD, Reason::kNone, {}, false, peer_});
}

Actions ServerHandshake::attach_failed(Reason reason, std::string detail) {
    if (state_ != State::kAttaching) {
        return {};
    }
    // behind the point of no return (RFC 7609 C.3)
    return finish({Outcome::Kind::kTerminate, reason, std::move(detail), false, {}});
}

Actions ServerHandshake::fault(const Fault& bad) {
    if (state_ != State::kAwaitProposal && state_ != State::kAwaitConfirm) {
        return {};
    }
    if (bad.verdict == Verdict::kDecline && state_ == State::kAwaitProposal) {
        return decline(Reason::kVersionMismatch, bad.text());
    }
    return finish({Outcome::Kind::kTerminate, Reason::kProtocolError, bad.text(), false, {}});
}

Actions ServerHandshake::peer_closed() {
    if (state_ == State::kDone) {
        return {};
    }
    return finish({Outcome::Kind::kTerminate, Reason::kPeerClosed, {}, false, {}});
}

Actions ServerHandshake::tick(TimePoint now) {
    if (state_ == State::kDone || now < deadline_) {
        return {};
    }
    const char* what = state_ == State::kAwaitProposal  ? "waiting for the Proposal"
                       : state_ == State::kAwaitConfirm ? "waiting for the Confirm"
                       : state_ == State::kPreparing    ? "waiting for the server application"
                                                        : "attaching the client's DMB";
    return finish({Outcome::Kind::kTerminate, Reason::kHandshakeTimeout, what, false, {}});
}

}  // namespace smc::clc
