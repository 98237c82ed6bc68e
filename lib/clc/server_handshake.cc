// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/clc/server_handshake.h"

#include <algorithm>
#include <utility>

namespace smc::clc {

// H4: from here on every call returns no actions.
Actions ServerHandshake::finish(Outcome outcome) {
    state_ = State::kDone;
    return {Finish{std::move(outcome)}};
}

Actions ServerHandshake::terminate(Reason reason, std::string detail) {
    return finish({.reason = reason, .detail = std::move(detail), .smcr = smcr_});
}

// There is no SMC-Dv1 here.
Reason ServerHandshake::smcd_v1_reason() const {
    return offers_d(proposal_.v1_offer) ? Reason::kNoSmcdDevice : Reason::kNone;
}

// In lieu of Accept: with a reason for each type that was offered (v2.1, Decline, note 3).
Actions ServerHandshake::decline(Reason reason, std::string detail) {
    Decline d = reasons_;
    d.version = std::min(proposal_.version, kVersion2);
    d.has_types = d.version == kVersion2;
    d.peer_id = node_.peer_id;
    d.reason = reason;
    d.smcd_v1 = smcd_v1_reason();
    Actions actions{Send{encode(d)}};
    actions.push_back(
        finish({.kind = Outcome::Kind::kFallBack, .reason = reason, .detail = std::move(detail)}).front());
    return actions;
}

// A Decline after the Confirm, in the version of the Confirm. It has no reasons by type (v2.1, Decline, note 4).
Actions ServerHandshake::late_decline(Reason reason, std::string detail, Outcome::Kind kind) {
    reasons_ = {};
    proposal_.v1_offer = Offer::kNone;
    proposal_.version = candidate_ == Candidate::kSmcRv1 ? kVersion1 : kVersion2;
    Actions actions = decline(reason, std::move(detail));
    std::get<Finish>(actions.back()).outcome.kind = kind;
    return actions;
}

// A late Decline takes the place of CONFIRM LINK (RFC 7609 C.2). On a subsequent contact, and with SMC-D, the Confirm
// is the last message of the handshake.
bool ServerHandshake::may_decline_late() const {
    return state_ == State::kAwaitConfirm && candidate_ != Candidate::kSmcDv2 && smcr_.first_contact;
}

Actions ServerHandshake::proposed(Bytes bytes, TimePoint now) {
    const auto decoded = decode_proposal(bytes);
    if (const auto* bad = std::get_if<Fault>(&decoded)) {
        return fault(*bad);
    }
    proposal_ = std::get<Proposal>(decoded);
    deadline_ = now + node_.step_timeout;
    return try_next("the Proposal offers no type of SMC that this node can use");
}

// H1: no Decline answers a Decline.
Actions ServerHandshake::peer_declined(Bytes bytes) {
    const auto decoded = decode_decline(bytes);
    if (const auto* bad = std::get_if<Fault>(&decoded)) {
        return fault(*bad);
    }
    Outcome outcome = declined_by_peer(std::get<Decline>(decoded));
    outcome.smcd = smcd_;
    outcome.smcr = smcr_;
    return finish(std::move(outcome));
}

Actions ServerHandshake::message(Bytes bytes, TimePoint now) {
    if (state_ == State::kAwaitProposal) {
        // A client declines here if it finds out late that it cannot use SMC, as Linux without a device (RFC 7609
        // 3.5.1.6.4).
        return type_of(bytes) == Type::kDecline ? peer_declined(bytes) : proposed(bytes, now);
    }
    if (state_ != State::kAwaitConfirm && state_ != State::kLinking) {
        return {};
    }
    if (type_of(bytes) == Type::kDecline) {
        return peer_declined(bytes);
    }
    if (state_ == State::kLinking) {
        return fault(wrong_type(bytes, "nothing but a Decline after the Confirm"));
    }
    const auto decoded = decode_acceptance(bytes, Type::kConfirm);
    if (const auto* bad = std::get_if<Fault>(&decoded)) {
        return fault(*bad);
    }
    const auto& acceptance = std::get<Acceptance>(decoded);
    if (candidate_ == Candidate::kSmcDv2) {
        const auto* smcd = std::get_if<AcceptD>(&acceptance);
        if (smcd != nullptr && smcd->version >= kVersion2) {
            return confirm(*smcd);
        }
        return fault(wrong_variant(acceptance, "SMC-Dv2, as accepted"));
    }
    const auto* smcr = std::get_if<AcceptR>(&acceptance);
    if (smcr != nullptr && std::min(smcr->version, kVersion2) == smcr_.version) {
        return confirm(*smcr, now);
    }
    return fault(wrong_variant(acceptance, "SMC-R in the version that was accepted"));
}

// A Proposal of a higher version is one of version 2 with additions.
bool ServerHandshake::offered(Candidate candidate) const {
    const bool v2 = proposal_.version >= kVersion2 && proposal_.v2;
    switch (candidate) {
        case Candidate::kSmcDv2:
            return v2 && offers_d(proposal_.v2_offer);
        case Candidate::kSmcRv2:
            return v2 && offers_r(proposal_.v2_offer);
        case Candidate::kSmcRv1:
            return offers_r(proposal_.v1_offer);
        case Candidate::kNone:
        case Candidate::kExhausted:
            break;
    }
    return false;
}

Reason& ServerHandshake::reason_of(Candidate candidate) {
    return candidate == Candidate::kSmcDv2   ? reasons_.smcd_v2
           : candidate == Candidate::kSmcRv2 ? reasons_.smcr_v2
                                             : reasons_.smcr_v1;
}

// Returns the action that prepares the candidate; nothing: it does not fit, and its reason says why.
std::optional<Action> ServerHandshake::try_candidate() {
    if (candidate_ == Candidate::kSmcDv2) {
        reasons_.smcd_v2 = means_.smcd ? select_smcd_v2(proposal_, node_, next_gid_, smcd_) : Reason::kNoSmcdV2Device;
        return reasons_.smcd_v2 == Reason::kNone ? std::optional<Action>(CreateDmb{smcd_.gid, smcd_.chid})
                                                 : std::nullopt;
    }
    Reason& reason = reason_of(candidate_);
    reason = candidate_ == Candidate::kSmcRv2 ? select_smcr_v2(proposal_, node_, means_.roce, smcr_)
                                              : select_smcr_v1(proposal_, means_.roce, smcr_);
    return reason == Reason::kNone ? std::optional<Action>(PrepareRmbe{smcr_}) : std::nullopt;
}

// Tries the next types that were offered until one fits; declines if none does.
Actions ServerHandshake::try_next(std::string detail) {
    state_ = State::kPreparing;
    while (candidate_ != Candidate::kExhausted) {
        candidate_ = Candidate{static_cast<std::uint8_t>(static_cast<std::uint8_t>(candidate_) + 1)};
        if (offered(candidate_)) {
            if (auto action = try_candidate()) {
                return {std::move(*action)};
            }
        }
    }
    Reason last = proposal_.version < kVersion2 ? Reason::kVersionMismatch : Reason::kModeMismatch;
    for (const Reason told : {smcd_v1_reason(), reasons_.smcd_v2, reasons_.smcr_v2, reasons_.smcr_v1}) {
        last = told != Reason::kNone ? told : last;
    }
    return decline(last, std::move(detail));
}

Actions ServerHandshake::prepare_failed(Reason reason, std::string detail) {
    if (state_ != State::kPreparing) {
        return {};
    }
    // Nothing was agreed on. The outcome must not name what was tried: its receiver gives up what the outcome names.
    smcd_ = {};
    smcr_ = {};
    if (auto other = candidate_ == Candidate::kSmcDv2 ? try_candidate() : std::nullopt) {
        return {std::move(*other)};  // by another fabric
    }
    reason_of(candidate_) = reason;
    return try_next(std::move(detail));
}

Actions ServerHandshake::dmb_ready(const LocalDmb& own, bool first_contact, std::uint32_t link_id, TimePoint now) {
    if (state_ != State::kPreparing) {
        return {};
    }
    own_dmb_ = own;
    link_id_ = link_id;
    smcd_.first_contact = first_contact;
    return accept_if_prepared(now);
}

Actions ServerHandshake::rmbe_ready(const LocalRmbe& own, TimePoint now) {
    if (state_ != State::kPreparing) {
        return {};
    }
    own_rmbe_ = own;
    smcr_.first_contact = own.first_contact;
    smcr_.link_type = own.link_type;
    return accept_if_prepared(now);
}

Actions ServerHandshake::application_ready(TimePoint now) {
    application_ready_ = true;
    return accept_if_prepared(now);
}

Actions ServerHandshake::application_refused(std::string detail, bool may_decline) {
    if (state_ == State::kPreparing && may_decline) {
        reason_of(candidate_) = Reason::kServerRefused;
        return decline(Reason::kServerRefused, std::move(detail));
    }
    return state_ == State::kDone ? Actions{} : terminate(Reason::kServerRefused, std::move(detail));
}

Actions ServerHandshake::accept_if_prepared(TimePoint now) {
    const bool smcd = candidate_ == Candidate::kSmcDv2;
    const bool prepared = smcd ? own_dmb_.has_value() : own_rmbe_.has_value();
    if (state_ != State::kPreparing || !application_ready_ || !prepared) {
        return {};
    }
    state_ = State::kAwaitConfirm;
    // With SMC-R the client may have to send CONFIRM RKEY before its Confirm. A Linux client sends one at a time, and
    // does not notice later that the server no longer waited for its Confirm.
    deadline_ = now + (smcd ? 1 : 2) * node_.step_timeout;
    if (smcd) {
        AcceptD a = own_half(Type::kAccept, node_, smcd_, *own_dmb_);
        a.link_id = link_id_;
        return {Send{encode(a)}};
    }
    AcceptR a = own_half(Type::kAccept, node_, *means_.roce, smcr_, *own_rmbe_);
    a.rc_saved = smcr_.version >= kVersion2 && proposal_.v2_offer == Offer::kBoth;
    return {Send{encode(a)}};
}

Actions ServerHandshake::confirm(const AcceptD& c) {
    const char* wrong = join(c.gid, c.gid_part2) != smcd_.gid      ? "GID"
                        : c.chid != smcd_.chid                     ? "CHID"
                        : c.eid != smcd_.eid                       ? "EID"
                        : c.first_contact != smcd_.first_contact   ? "first contact flag"
                        : c.dmbe_index != 0                        ? "DMBE index"
                        : c.fce && c.fce->release != smcd_.release ? "release"
                                                                   : nullptr;
    if (wrong != nullptr) {
        return terminate(Reason::kProtocolError, std::string("Confirm does not repeat the Accept: ") + wrong);
    }
    if (c.fce && c.fce->features != kFeatureEmulatedIsm) {
        // v2.1, "Feature negotiation", item 5
        return late_decline(Reason::kReleaseMismatch, "Confirm has other features than agreed",
                            Outcome::Kind::kTerminate);
    }
    smcd_.token = c.token;
    smcd_.dmb_size = c.dmbe_size;
    if (c.fce) {
        smcd_.host_name = c.fce->host_name.text();
    }
    state_ = State::kAttaching;
    return {AttachDmb{smcd_}};
}

namespace {

// The first field in which a Confirm differs from what was agreed; nullptr: none.
const char* what_differs(const AcceptR& c, const SmcrPeer& agreed) {
    const bool v2 = agreed.version >= kVersion2;
    const std::pair<bool, const char*> differences[] = {
        {v2 && c.eid != agreed.eid, "EID"},
        {v2 && c.first_contact != agreed.first_contact, "first contact flag"},
        {v2 && agreed.first_contact && !c.fce, "First Contact Extension"},
        {c.fce && c.fce->release != agreed.release, "release"},
        {v2 && c.gid.is_v4() != agreed.link.gid.is_v4(), "GID of another family"},
        {!c.gid_list.empty() && c.gid_list[0].normalised() != c.gid.normalised(), "first GID of the list"},
        {agreed.id != PeerId{} && c.peer_id != agreed.id, "peer ID"},
        {c.rmbe_index == 0, "RMBE index"},
    };
    const auto* first = std::ranges::find(differences, true, &std::pair<bool, const char*>::first);
    return first != std::end(differences) ? first->second : nullptr;
}

}  // namespace

Actions ServerHandshake::confirm(const AcceptR& c, TimePoint now) {
    SmcrPeer& p = smcr_;
    const char* wrong = what_differs(c, p);
    if (wrong != nullptr) {
        return terminate(Reason::kProtocolError, std::string("Confirm does not fit the Accept: ") + wrong);
    }
    if (c.fce && p.first_contact && p.release >= kRelease1 &&
        (c.fce->max_connections != p.max_connections || c.fce->max_links != p.max_links)) {
        return late_decline(Reason::kReleaseMismatch, "Confirm has other maxima than the Accept",
                            Outcome::Kind::kFallBack);
    }
    if (c.fce && p.first_contact && p.release >= kRelease1 && c.fce->features != p.features) {
        return late_decline(Reason::kReleaseMismatch, "Confirm has other features than agreed",
                            Outcome::Kind::kFallBack);
    }
    // v2.1, Confirm, note 1. If the client offers version 1 as well, the Proposal's MAC address may be for version 1.
    if (p.first_contact && p.version >= kVersion2 && p.link_type == LinkType::kDirect && proposal_.mac != Mac{} &&
        !offers_r(proposal_.v1_offer) && c.mac != proposal_.mac) {
        return late_decline(Reason::kDirectMismatch, "Confirm has another MAC address than the Proposal",
                            Outcome::Kind::kFallBack);
    }
    if (p.first_contact && !is_valid(c.mtu)) {  // only of version 1: in version 2 the decoder has checked it
        return late_decline(Reason::kVersionMismatch, "Confirm has a reserved value as its MTU",
                            Outcome::Kind::kFallBack);
    }
    p.id = c.peer_id;  // Linux's Proposal of version 2 has no peer ID
    p.link = {c.gid.normalised(), c.mac, c.qpn, c.psn, c.mtu};
    p.gids.resize(0);
    for (const RoceGid& gid : c.gid_list) {
        p.gids.push_back(gid.normalised());
    }
    p.rmbe = {c.rkey, c.rmb_address, c.rmbe_index, c.alert_token, c.rmbe_size};
    if (c.fce) {
        p.host_name = c.fce->host_name.text();
        p.os = c.fce->os;
    }
    state_ = State::kLinking;
    deadline_ = now + 2 * node_.step_timeout;  // as at the client
    return {AwaitLink{p}};
}

Actions ServerHandshake::link_ready() {
    return state_ == State::kLinking ? finish({.kind = Outcome::Kind::kSmcR, .smcr = smcr_}) : Actions{};
}

Actions ServerHandshake::link_refused(Reason reason, std::string detail) {
    return state_ == State::kLinking ? late_decline(reason, std::move(detail), Outcome::Kind::kFallBack) : Actions{};
}

Actions ServerHandshake::link_failed(Reason reason, std::string detail) {
    return state_ == State::kLinking ? terminate(reason, std::move(detail)) : Actions{};
}

Actions ServerHandshake::attached() {
    return state_ == State::kAttaching ? finish({.kind = Outcome::Kind::kSmcD, .smcd = smcd_}) : Actions{};
}

// After the point of no return (RFC 7609 C.3).
Actions ServerHandshake::attach_failed(Reason reason, std::string detail) {
    return state_ == State::kAttaching ? terminate(reason, std::move(detail)) : Actions{};
}

// H2.
Actions ServerHandshake::fault(const Fault& bad) {
    if (state_ != State::kAwaitProposal && state_ != State::kAwaitConfirm && state_ != State::kLinking) {
        return {};
    }
    if (bad.verdict == Verdict::kDecline && state_ == State::kAwaitProposal) {
        return decline(Reason::kVersionMismatch, bad.text());
    }
    if (bad.verdict == Verdict::kDecline && may_decline_late()) {
        return late_decline(Reason::kVersionMismatch, bad.text(), Outcome::Kind::kFallBack);
    }
    return terminate(Reason::kProtocolError, bad.text());
}

Actions ServerHandshake::peer_closed() {
    return state_ == State::kDone ? Actions{} : terminate(Reason::kPeerClosed, {});
}

Actions ServerHandshake::tick(TimePoint now) {
    if (state_ == State::kDone || now < deadline_) {
        return {};
    }
    const char* what = state_ == State::kAwaitProposal  ? "waiting for the Proposal"
                       : state_ == State::kAwaitConfirm ? "waiting for the Confirm"
                       : state_ == State::kPreparing    ? "waiting for the server application"
                       : state_ == State::kLinking      ? "waiting for the link"
                                                        : "attaching the client's DMB";
    return terminate(Reason::kHandshakeTimeout, what);
}

}  // namespace smc::clc
