// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/llc/link_machine.h"

#include <algorithm>

namespace smc::llc {

namespace {

// Linux's flag for "my RMBEs have no eye catcher".
constexpr std::uint8_t kNoEyeCatcher = 3;
constexpr std::uint8_t kFirstLink = 1;
constexpr std::uint8_t kSecondLink = 2;

}  // namespace

template <class M>
M LinkMachine::request() const {
    M message;
    message.version = terms_.version;
    message.little_endian = little_endian_;
    return message;
}

template <class M>
M LinkMachine::reply(M message) const {
    message.reply = true;
    return message;
}

void LinkMachine::send(Actions& out, const AnyMessage& message) const {
    out.push_back(Send{encode(message)});
}

void LinkMachine::over(Actions& out, Reason reason, std::string detail) {
    if (state_ != State::kOver) {
        state_ = State::kOver;
        out.push_back(Over{reason, std::move(detail)});
    }
}

void LinkMachine::activate(Actions& out, TimePoint now) {
    state_ = State::kActive;
    deadline_ = TimePoint::max();
    out.push_back(Confirmed{eye_catchers_, peer_id_});
    if (exchange_deadline_ == TimePoint::max()) {
        next_exchange(out, now);
    }
}

bool LinkMachine::know(RKey rkey) {
    if (peer_rkeys_.size() >= kMaxRmbs && !peer_rkeys_.contains(rkey)) {
        return false;
    }
    peer_rkeys_.insert(rkey);
    return true;
}

Actions LinkMachine::start(TimePoint now) {
    Actions out;
    heard_at_ = now;
    deadline_ = now + (terms_.server ? terms_.reply_timeout : terms_.reply_timeout * 3 / 2);
    if (terms_.server) {
        auto m = request<ConfirmLink>();
        m.cache_size = terms_.eye_catchers ? 0 : kNoEyeCatcher;
        m.mac = terms_.own.mac;
        m.gid = terms_.own.gid;
        m.qpn = terms_.own.qpn;
        m.link_number = kFirstLink;
        m.link_id = terms_.own_id;
        m.max_links = terms_.max_links;
        m.max_connections = terms_.version >= 2 ? terms_.max_connections : 0;
        send(out, m);
    }
    return out;
}

Actions LinkMachine::message(Bytes bytes, TimePoint now) {
    Actions out;
    if (state_ == State::kOver) {
        return out;
    }
    heard_at_ = now;
    const auto decoded = decode(bytes);
    if (const auto* bad = std::get_if<Fault>(&decoded)) {
        if (bad->verdict == Verdict::kReject) {
            send(out, rejection(bytes));
        } else if (bad->verdict != Verdict::kIgnore) {
            over(out, Reason::kLlcViolation, bad->text());
        }
        return out;
    }
    const auto& message = std::get<AnyMessage>(decoded);
    little_endian_ = header_of(message).little_endian;
    std::visit([&](const auto& m) { on(out, m, now); }, message);
    return out;
}

void LinkMachine::on(Actions& out, const ConfirmLink& m, TimePoint now) {
    if (state_ != State::kConfirming || m.reply != terms_.server) {
        return over(out, Reason::kLlcViolation, "CONFIRM LINK out of place");
    }
    if (m.gid.normalised() != terms_.peer.gid.normalised() || m.qpn != terms_.peer.qpn) {
        return over(out, Reason::kLlcViolation, "CONFIRM LINK tells of another link than CLC did");
    }
    eye_catchers_ = terms_.eye_catchers || m.cache_size != kNoEyeCatcher;
    peer_id_ = m.link_id;
    if (!terms_.server) {
        ConfirmLink answer = reply(m);
        answer.cache_size = terms_.eye_catchers ? 0 : kNoEyeCatcher;
        answer.mac = terms_.own.mac;
        answer.gid = terms_.own.gid;
        answer.qpn = terms_.own.qpn;
        answer.link_id = terms_.own_id;
        link_number_ = m.link_number;
        send(out, answer);
    } else if (terms_.second) {
        auto offer = request<AddLink>();
        offer.padded = true;  // as Linux has it
        offer.mac = terms_.second->mac;
        offer.gid = terms_.second->gid;
        offer.qpn = terms_.second->qpn;
        offer.link_number = kSecondLink;
        offer.mtu = terms_.mtu;
        offer.psn = terms_.second_psn;
        send(out, offer);
    }
    if (terms_.server ? terms_.second.has_value() : terms_.max_links > 1) {
        state_ = State::kAdding;
        deadline_ = now + terms_.reply_timeout;
    } else {
        activate(out, now);
    }
}

// There is never a second path here.
void LinkMachine::on(Actions& out, const AddLink& m, TimePoint now) {
    if (m.reply) {
        if (state_ != State::kAdding || !terms_.server) {
            return;  // to a request that has timed out
        }
        if (!m.rejected) {
            auto not_needed = request<DeleteLink>();
            not_needed.orderly = true;
            not_needed.link_number = kSecondLink;
            not_needed.reason = DeleteLinkReason::kAsymmetricNotNeeded;
            send(out, not_needed);
        }
        return activate(out, now);
    }
    if (terms_.server) {
        return;  // version 1: a client asks for a link; section 3.5.5.3 lets the server ignore it
    }
    AddLink answer = reply(m);
    answer.rejected = true;
    answer.reason = AddLinkReason::kNoAlternatePath;
    answer.large.reset();
    send(out, answer);
    if (state_ == State::kAdding) {
        activate(out, now);
    }
}

void LinkMachine::on(Actions& out, const RequestAddLink& m, TimePoint) {
    if (!m.reply && terms_.server) {
        RequestAddLink answer = reply(m);
        answer.rejected = true;
        send(out, answer);
    }
}

void LinkMachine::on(Actions& out, const ConfirmRkey& m, TimePoint now) {
    if (!m.reply) {
        ConfirmRkey answer = reply(m);
        answer.negative = !know(m.rkey);
        return send(out, answer);
    }
    if (exchanges_.empty() || exchanges_.front().deletes || exchanges_.front().rkey != m.rkey) {
        return;  // late
    }
    out.push_back(RkeyConfirmed{m.rkey, !m.negative});
    exchanges_.pop_front();
    next_exchange(out, now);
}

void LinkMachine::on(Actions& out, const ConfirmRkeyContinuation& m, TimePoint) {
    if (!m.reply) {
        send(out, reply(m));  // tokens of other links: there are none
    }
}

void LinkMachine::on(Actions& out, const DeleteRkey& m, TimePoint now) {
    if (m.reply) {
        if (!exchanges_.empty() && exchanges_.front().deletes) {
            // What the peer did not know it cannot use either.
            out.push_back(RkeyDeleted{exchanges_.front().rkey});
            exchanges_.pop_front();
            next_exchange(out, now);
        }
        return;
    }
    DeleteRkey answer = reply(m);
    answer.count = static_cast<std::uint8_t>(m.rkeys.size());
    List<RKey, kMaxRmbs> unknown;
    for (std::size_t i = 0; i < m.rkeys.size(); i++) {
        if (peer_rkeys_.erase(m.rkeys[i]) == 0) {
            unknown.push_back(m.rkeys[i]);
            if (i < 8) {
                answer.error_mask = static_cast<std::uint8_t>(answer.error_mask | 0x80 >> i);
            }
        }
    }
    answer.negative = !unknown.empty();
    answer.invalid_count = static_cast<std::uint8_t>(unknown.size());
    if (m.version >= 2) {
        answer.rkeys = unknown;
        answer.rkeys.resize(std::min<std::size_t>(unknown.size(), 8));
    }
    send(out, answer);
}

void LinkMachine::on(Actions& out, const DeleteLink& m, TimePoint) {
    const std::string detail = "DELETE LINK: " + text(m.reason);
    if (m.reply) {
        if (state_ == State::kEnding) {
            over(out, Reason::kNone, detail);
        }
        return;
    }
    if (!m.all && m.link_number != link_number_) {
        DeleteLink answer = reply(m);
        answer.reason = DeleteLinkReason::kUnknownLink;
        return send(out, answer);
    }
    if (terms_.server) {
        // A client's request only tells; the server's own request is the answer (section 3.5.4).
        auto all = request<DeleteLink>();
        all.all = true;
        all.orderly = m.orderly;
        all.reason = m.reason;
        send(out, all);
    } else if (!m.all) {
        send(out, reply(m));
    }
    over(out, state_ == State::kEnding || m.orderly ? Reason::kNone : Reason::kLinkDown, detail);
}

void LinkMachine::on(Actions& out, const TestLink& m, TimePoint) {
    if (!m.reply) {
        return send(out, reply(m));
    }
    if (test_deadline_ == TimePoint::max()) {
        return;  // late
    }
    if (m.user_data != test_data_) {
        return over(out, Reason::kLlcViolation, "TEST LINK came back with other data");
    }
    test_deadline_ = TimePoint::max();
}

void LinkMachine::next_exchange(Actions& out, TimePoint now) {
    if (exchanges_.empty()) {
        exchange_deadline_ = TimePoint::max();
        return;
    }
    exchange_deadline_ = now + 2 * terms_.reply_timeout;
    const Exchange& exchange = exchanges_.front();
    if (exchange.deletes) {
        auto m = request<DeleteRkey>();
        m.rkeys.push_back(exchange.rkey);
        m.count = 1;
        return send(out, m);
    }
    auto m = request<ConfirmRkey>();
    m.rkey = exchange.rkey;
    m.address = exchange.address;
    send(out, m);
}

Actions LinkMachine::confirm_rkey(RKey rkey, VirtualAddress address, TimePoint now) {
    Actions out;
    exchanges_.push_back({rkey, address, false});
    if (exchanges_.size() == 1 && state_ == State::kActive) {
        next_exchange(out, now);
    }
    return out;
}

Actions LinkMachine::delete_rkey(RKey rkey, TimePoint now) {
    Actions out;
    exchanges_.push_back({rkey, {}, true});
    if (exchanges_.size() == 1 && state_ == State::kActive) {
        next_exchange(out, now);
    }
    return out;
}

Actions LinkMachine::end(DeleteLinkReason reason, TimePoint now) {
    Actions out;
    if (state_ == State::kOver || state_ == State::kEnding) {
        return out;
    }
    auto m = request<DeleteLink>();
    m.all = true;
    m.orderly = true;
    m.reason = reason;
    send(out, m);
    if (terms_.server) {
        over(out, Reason::kNone, text(reason));
    } else {
        state_ = State::kEnding;
        deadline_ = now + terms_.reply_timeout;
    }
    return out;
}

Actions LinkMachine::down(std::string why) {
    Actions out;
    over(out, Reason::kLinkDown, std::move(why));
    return out;
}

Actions LinkMachine::tick(TimePoint now, std::uint64_t heard) {
    Actions out;
    if (state_ == State::kOver) {
        return out;
    }
    if (heard != heard_) {
        heard_ = heard;
        heard_at_ = now;
    }
    if (now >= deadline_) {
        if (state_ == State::kConfirming) {
            over(out, Reason::kTimeoutConfirmLink, "waiting for CONFIRM LINK");
        } else if (state_ == State::kAdding) {
            activate(out, now);  // one link will do
        } else if (state_ == State::kEnding) {
            over(out, Reason::kNone, "the server did not answer DELETE LINK");
        }
        return out;
    }
    if (now >= exchange_deadline_) {
        over(out, Reason::kLinkDown,
             exchanges_.front().deletes ? "DELETE RKEY was not answered" : "CONFIRM RKEY was not answered");
        return out;
    }
    if (state_ != State::kActive) {
        return out;
    }
    if (test_deadline_ != TimePoint::max()) {
        if (now >= test_deadline_ && now - heard_at_ >= 2 * terms_.reply_timeout) {
            over(out, Reason::kLinkDown, "TEST LINK was not answered");
        }
    } else if (now - heard_at_ >= terms_.test_interval) {
        auto m = request<TestLink>();
        wire::store_be(test_data_.data(), 8, ++tests_);
        m.user_data = test_data_;
        test_deadline_ = now + 2 * terms_.reply_timeout;
        send(out, m);
    }
    return out;
}

}  // namespace smc::llc
