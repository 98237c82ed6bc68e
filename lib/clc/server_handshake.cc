// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <algorithm>

#include "smc/clc/handshake.h"

namespace smc::clc {

Actions ServerHandshake::finish(Outcome outcome) {
    state_ = State::kDone;
    return {Finish{std::move(outcome)}};
}

Actions ServerHandshake::terminate(Reason reason, std::string detail) {
    return finish({Outcome::Kind::kTerminate, reason, std::move(detail), false, {}, roce_peer_, {}});
}

// In lieu of Accept: with a reason for each type that was offered (v2.1, Decline, note 3).
Actions ServerHandshake::decline(Reason reason, std::string detail) {
    Decline d = reasons_;
    d.version = std::min(proposal_.version, kVersion2);
    d.has_types = d.version == kVersion2;
    d.peer_id = node_.peer_id;
    d.reason = reason;
    d.smcd_v1 = offers_d(proposal_.v1_offer) ? Reason::kNoSmcdDevice : Reason::kNone;
    Actions actions{Send{encode(d)}};
    actions.push_back(finish({Outcome::Kind::kFallBack, reason, std::move(detail), false, {}, {}, {}}).front());
    return actions;
}

// Behind the Confirm. Has no reasons by type (v2.1, Decline, note 4).
Actions ServerHandshake::late_decline(Reason reason, std::string detail, Outcome::Kind kind) {
    reasons_ = {};
    proposal_.v1_offer = Offer::kNone;
    Actions actions = decline(reason, std::move(detail));
    std::get<Finish>(actions.back()).outcome.kind = kind;
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
        return try_next("nothing offered that this node has");
    }
    if (state_ != State::kAwaitConfirm && state_ != State::kLinking) {
        return {};
    }
    const auto header = decode_header(bytes.first(std::min(bytes.size(), kHeaderBytes)));
    if (const auto* h = std::get_if<Header>(&header); h != nullptr && h->type == Type::kDecline) {
        const auto decoded = decode_decline(bytes);
        if (const auto* bad = std::get_if<Fault>(&decoded)) {
            return fault(*bad);
        }
        const auto& d = std::get<Decline>(decoded);
        return finish({Outcome::Kind::kFallBack, Reason::kPeerDeclined, "peer's reason " + reason_name(d.reason),
                       d.out_of_sync, peer_, roce_peer_, d.reason});
    }
    if (state_ == State::kLinking) {
        return fault(
            {"clc_message_type", 4, bytes.size() > 4 ? bytes[4] : 0U, "nothing but a Decline behind the Confirm"});
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
        return fault({"eye_catcher", 0, kEyeCatcherR, "SMC-Dv2, as accepted"});
    }
    const auto* smcr = std::get_if<AcceptR>(&acceptance);
    if (smcr != nullptr && std::min(smcr->version, kVersion2) == roce_peer_.version) {
        return confirm(*smcr, now);
    }
    return fault(
        {"eye_catcher", 0, smcr != nullptr ? kEyeCatcherR : kEyeCatcherD, "SMC-R in the version that was accepted"});
}

// The next type that was offered and that fits. A Proposal of a higher version is one of version 2 with more to it.
Actions ServerHandshake::try_next(std::string detail) {
    const bool v2 = proposal_.version >= kVersion2 && proposal_.v2;
    Reason last = proposal_.version < kVersion2 ? Reason::kVersionMismatch : Reason::kModeMismatch;
    for (const Reason told : {reasons_.smcd_v2, reasons_.smcr_v2, reasons_.smcr_v1}) {
        last = told != Reason::kNone ? told : last;
    }
    while (candidate_ != Candidate::kExhausted) {
        candidate_ = Candidate{static_cast<std::uint8_t>(static_cast<std::uint8_t>(candidate_) + 1)};
        state_ = State::kPreparing;
        if (candidate_ == Candidate::kSmcDv2 && v2 && offers_d(proposal_.v2_offer)) {
            last = reasons_.smcd_v2 = judge(proposal_, node_, peer_);
            if (last == Reason::kNone) {
                return {CreateDmb{peer_.gid}};
            }
        } else if (candidate_ == Candidate::kSmcRv2 && v2 && offers_r(proposal_.v2_offer)) {
            last = reasons_.smcr_v2 = judge_v2(proposal_, node_, roce_, roce_peer_);
            if (last == Reason::kNone) {
                return {PrepareRmbe{roce_peer_}};
            }
        } else if (candidate_ == Candidate::kSmcRv1 && offers_r(proposal_.v1_offer)) {
            last = reasons_.smcr_v1 = judge_v1(proposal_, roce_, roce_peer_);
            if (last == Reason::kNone) {
                return {PrepareRmbe{roce_peer_}};
            }
        }
    }
    return decline(last, std::move(detail));
}

Actions ServerHandshake::prepare_failed(Reason reason, std::string detail) {
    if (state_ != State::kPreparing) {
        return {};
    }
    (candidate_ == Candidate::kSmcDv2   ? reasons_.smcd_v2
     : candidate_ == Candidate::kSmcRv2 ? reasons_.smcr_v2
                                        : reasons_.smcr_v1) = reason;
    return try_next(std::move(detail));
}

Actions ServerHandshake::dmb_ready(const LocalDmb& own, bool first_contact, std::uint32_t link_id, TimePoint now) {
    if (state_ != State::kPreparing) {
        return {};
    }
    own_dmb_ = own;
    link_id_ = link_id;
    peer_.first_contact = first_contact;
    return accept_if_prepared(now);
}

Actions ServerHandshake::rmbe_ready(const LocalRmbe& own, TimePoint now) {
    if (state_ != State::kPreparing) {
        return {};
    }
    own_rmbe_ = own;
    roce_peer_.first_contact = own.first_contact;
    roce_peer_.link_type = own.link_type;
    return accept_if_prepared(now);
}

Actions ServerHandshake::application_ready(TimePoint now) {
    application_ready_ = true;
    return accept_if_prepared(now);
}

Actions ServerHandshake::application_refused() {
    if (state_ == State::kDone) {
        return {};
    }
    return terminate(Reason::kServerRefused, {});
}

Actions ServerHandshake::accept_if_prepared(TimePoint now) {
    const bool smcd = candidate_ == Candidate::kSmcDv2;
    if (state_ != State::kPreparing || !application_ready_ || (smcd ? !own_dmb_.has_value() : !own_rmbe_.has_value())) {
        return {};
    }
    state_ = State::kAwaitConfirm;
    deadline_ = now + node_.step_timeout;
    if (smcd) {
        AcceptD a = own_half(Type::kAccept, node_, peer_, *own_dmb_);
        a.link_id = link_id_;
        return {Send{encode(a)}};
    }
    AcceptR a = own_half(Type::kAccept, node_, *roce_, roce_peer_, *own_rmbe_);
    a.rc_saved = roce_peer_.version >= kVersion2 && proposal_.v2_offer == Offer::kBoth;
    return {Send{encode(a)}};
}

Actions ServerHandshake::confirm(const AcceptD& c) {
    const char* wrong = join(c.gid, c.gid_part2) != peer_.gid      ? "GID"
                        : c.chid != peer_.chid                     ? "CHID"
                        : c.eid != peer_.eid                       ? "EID"
                        : c.first_contact != peer_.first_contact   ? "first contact flag"
                        : c.dmbe_index != 0                        ? "DMBE index"
                        : c.fce && c.fce->release != peer_.release ? "release"
                                                                   : nullptr;
    if (wrong != nullptr) {
        return terminate(Reason::kProtocolError, std::string("Confirm does not repeat the Accept: ") + wrong);
    }
    if (c.fce && c.fce->features != kFeatureEmulatedIsm) {
        // v2.1, "Feature negotiation", item 5
        return late_decline(Reason::kReleaseMismatch, "Confirm has other features than agreed",
                            Outcome::Kind::kTerminate);
    }
    peer_.token = c.token;
    peer_.dmb_size = c.dmbe_size;
    if (c.fce) {
        peer_.host_name = c.fce->host_name.text();
    }
    state_ = State::kAttaching;
    return {AttachDmb{peer_}};
}

Actions ServerHandshake::confirm(const AcceptR& c, TimePoint now) {
    RocePeer& p = roce_peer_;
    const bool v2 = p.version >= kVersion2;
    const char* wrong = v2 && c.eid != p.eid                       ? "EID"
                        : v2 && c.first_contact != p.first_contact ? "first contact flag"
                        : v2 && p.first_contact && !c.fce          ? "First Contact Extension"
                        : c.fce && c.fce->release != p.release     ? "release"
                        : p.id != PeerId{} && c.peer_id != p.id    ? "peer ID"
                        : c.rmbe_index == 0                        ? "RMBE index"
                                                                   : nullptr;
    if (wrong != nullptr) {
        return terminate(Reason::kProtocolError, std::string("Confirm does not fit the Accept: ") + wrong);
    }
    if (c.fce && p.first_contact && p.release >= kRelease1 &&
        (c.fce->max_connections != p.max_connections || c.fce->max_links != p.max_links)) {
        return late_decline(Reason::kReleaseMismatch, "Confirm has other maxima than the Accept",
                            Outcome::Kind::kTerminate);
    }
    if (p.first_contact && !is_valid(c.mtu)) {
        return terminate(Reason::kProtocolError, "Confirm has an MTU that does not exist");
    }
    p.id = c.peer_id;  // Linux's Proposal of version 2 has none
    p.link = {c.gid.normalised(), c.mac, c.qpn, c.psn, c.mtu};
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
    if (state_ != State::kLinking) {
        return {};
    }
    return finish({Outcome::Kind::kSmcR, Reason::kNone, {}, false, {}, roce_peer_, {}});
}

Actions ServerHandshake::link_refused(Reason reason, std::string detail) {
    return state_ == State::kLinking ? late_decline(reason, std::move(detail), Outcome::Kind::kFallBack) : Actions{};
}

// Behind the point of no return (RFC 7609 C.3, C.7).
Actions ServerHandshake::link_failed(Reason reason, std::string detail) {
    return state_ == State::kLinking ? terminate(reason, std::move(detail)) : Actions{};
}

Actions ServerHandshake::attached() {
    if (state_ != State::kAttaching) {
        return {};
    }
    return finish({Outcome::Kind::kSmcD, Reason::kNone, {}, false, peer_, {}, {}});
}

Actions ServerHandshake::attach_failed(Reason reason, std::string detail) {
    if (state_ != State::kAttaching) {
        return {};
    }
    // behind the point of no return (RFC 7609 C.3)
    return terminate(reason, std::move(detail));
}

Actions ServerHandshake::fault(const Fault& bad) {
    if (state_ != State::kAwaitProposal && state_ != State::kAwaitConfirm && state_ != State::kLinking) {
        return {};
    }
    if (bad.verdict == Verdict::kDecline && state_ == State::kAwaitProposal) {
        return decline(Reason::kVersionMismatch, bad.text());
    }
    return terminate(Reason::kProtocolError, bad.text());
}

Actions ServerHandshake::peer_closed() {
    if (state_ == State::kDone) {
        return {};
    }
    return terminate(Reason::kPeerClosed, {});
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
