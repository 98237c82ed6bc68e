// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <algorithm>

#include "agent/clc/handshake.h"

namespace smc::clc {

Actions ClientHandshake::finish(Outcome outcome) {
    state_ = State::kDone;
    return {Finish{std::move(outcome)}};
}

Actions ClientHandshake::decline(Reason reason, std::string detail, bool out_of_sync) {
    Decline d;
    d.peer_id = node_.peer_id;
    d.reason = reason;
    d.out_of_sync = out_of_sync;
    Actions actions{Send{encode(d)}};
    actions.push_back(
        finish({Outcome::Kind::kFallBack, reason, std::move(detail), false, {}}).front());
    return actions;
}

Actions ClientHandshake::start(TimePoint now) {
    Proposal p;
    p.v2_offer = Offer::kSmcD;
    p.peer_id = node_.peer_id;
    V2Extension& v2 = p.v2.emplace();
    v2.features = kFeatureEmulatedIsm;
    for (const Eid& eid : node_.ueids) {
        v2.eids.push_back(eid);
    }
    SmcdExtension& smcd = v2.smcd.emplace();
    if (node_.seid) {
        v2.seid_present = true;
        smcd.seid = *node_.seid;
    }
    add_extended_gid(smcd, node_.gid, node_.chid);
    state_ = State::kAwaitAccept;
    deadline_ = now + node_.step_timeout;
    return {Send{encode(p)}};
}

Actions ClientHandshake::message(Bytes bytes) {
    if (state_ != State::kAwaitAccept) {
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
                       "peer's reason " + reason_name(d.reason), d.out_of_sync, {}});
    }
    const auto decoded = decode_acceptance(bytes, Type::kAccept);
    if (const auto* bad = std::get_if<Fault>(&decoded)) {
        return fault(*bad);
    }
    const auto* smcd = std::get_if<AcceptD>(&std::get<Acceptance>(decoded));
    if (smcd == nullptr || smcd->version < kVersion2) {
        return fault({"eye_catcher", 0, kEyeCatcherR, "SMC-Dv2: nothing else was offered"});
    }
    return accept(*smcd);
}

Actions ClientHandshake::accept(const AcceptD& a) {
    if (a.fce && a.fce->release > kRelease1) {
        return decline(Reason::kReleaseMismatch, "Accept has a higher release than the Proposal");
    }
    // Emulated-ISM exists from release 1 on, and only where both feature bits are set.
    if (a.fce && (a.fce->release < kRelease1 || (a.fce->features & kFeatureEmulatedIsm) == 0)) {
        return decline(Reason::kReleaseMismatch, "server accepted without the Emulated-ISM feature");
    }
    if (a.chid != node_.chid) {
        return decline(Reason::kNoSmcdV2Device, "server chose CHID " + smc::text(a.chid));
    }
    const bool offered = std::find(node_.ueids.begin(), node_.ueids.end(), a.eid) != node_.ueids.end();
    if (!offered && a.eid != node_.seid) {
        return decline(Reason::kNoUeid, "server chose EID " + a.eid.text());
    }
    if (a.dmbe_index != 0) {
        return decline(Reason::kInternal, "server wants several elements in one DMB");
    }
    peer_.gid = join(a.gid, a.gid_part2);
    peer_.chid = a.chid;
    peer_.eid = a.eid;
    peer_.token = a.token;
    peer_.dmb_size = a.dmbe_size;
    peer_.first_contact = a.first_contact;
    peer_.release = a.fce ? a.fce->release : kRelease1;
    if (a.fce) {
        peer_.host_name = a.fce->host_name.text();
    }
    state_ = State::kAttaching;
    return {AttachDmb{peer_}};
}

Actions ClientHandshake::attached(const LocalDmb& own, bool in_sync) {
    if (state_ != State::kAttaching) {
        return {};
    }
    if (!in_sync) {
        return decline(Reason::kOutOfSync, "server thinks it knows us", true);
    }
    Actions actions{Send{encode(own_half(Type::kConfirm, node_, peer_, own))}};
    actions.push_back(finish({Outcome::Kind::kSmcD, Reason::kNone, {}, false, peer_}).front());
    return actions;
}

Actions ClientHandshake::attach_failed(Reason reason, std::string detail) {
    return state_ == State::kAttaching ? decline(reason, std::move(detail)) : Actions{};
}

Actions ClientHandshake::fault(const Fault& bad) {
    if (state_ != State::kAwaitAccept) {
        return {};
    }
    if (bad.verdict == Verdict::kDecline) {
        return decline(Reason::kVersionMismatch, bad.text());
    }
    return finish({Outcome::Kind::kTerminate, Reason::kProtocolError, bad.text(), false, {}});
}

Actions ClientHandshake::peer_closed() {
    if (state_ == State::kDone) {
        return {};
    }
    return finish({Outcome::Kind::kTerminate, Reason::kPeerClosed, {}, false, {}});
}

Actions ClientHandshake::tick(TimePoint now) {
    if (state_ == State::kIdle || state_ == State::kDone || now < deadline_) {
        return {};
    }
    return finish({Outcome::Kind::kTerminate, Reason::kHandshakeTimeout, "waiting for Accept", false, {}});
}

}  // namespace smc::clc
