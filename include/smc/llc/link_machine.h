// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// LLC on the one link of a link group, as a state machine without I/O (RFC 7609 sections 3.5.1.4 to 3.5.5, 4.5.3 and
// C.7; SMC v2.1 "LLC V2 messages"). It is fed messages and clock ticks and answers with actions.
//
//   server                                          client
//   kConfirming  start  -> CONFIRM LINK             kConfirming  CONFIRM LINK -> reply
//                reply  -> ADD LINK, or kActive                     more links agreed -> kAdding, or kActive
//   kAdding      reply or time-out -> kActive       kAdding      ADD LINK or time-out -> rejected, kActive
//   kActive      CONFIRM/DELETE RKEY, TEST LINK     kActive      the same
//   kEnding      (never: it tells, and is over)     kEnding      DELETE LINK sent, the server's is awaited
//   kOver                                           kOver
//
// Invariants:
//   M1  At most one own RKEY exchange at a time; the peer's are answered at any time (section 3.5.5.3).
//   M2  Every request has a deadline; one that is not answered means that the link is down (C.7.1).
//   M3  Exactly one Over is ever returned, and nothing after it.
//   M4  Requests and replies have the peer's byte order, once it is known (Linux writes version 2's length in host
//   order).
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "smc/wire/llc.h"
#include "smc/wire/reason.h"

namespace smc::llc {

using TimePoint = std::chrono::steady_clock::time_point;

// One end of the link, as CLC told the other.
struct LinkEnd {
    RoceGid gid;
    Mac mac;
    Qpn qpn{};
};

struct LinkTerms {
    bool server = false;
    std::uint8_t version = 2;
    LinkEnd own, peer;
    LinkId own_id{};
    std::uint8_t max_links = 1;  // as agreed
    std::uint8_t max_connections = 255;
    bool eye_catchers = false;  // ours have them; they are used unless neither side has
    // What version 1 wants a server to offer although it has no second path (section 3.5.1.6).
    std::optional<LinkEnd> second;
    Psn second_psn{};
    clc::Mtu mtu = clc::Mtu::k1024;
    // Of first contact. A client waits half as long again, to hear from a server that gave up; an established link has
    // twice the time, because its queue pair may be retransmitting.
    std::chrono::milliseconds reply_timeout{2000};
    std::chrono::milliseconds test_interval{30000};
};

struct Send {
    Message message;
};
// The link may carry connections.
struct Confirmed {
    bool eye_catchers = false;
    LinkId peer_id{};
};
struct RkeyConfirmed {
    RKey rkey{};
    bool accepted = false;
};
struct RkeyDeleted {
    RKey rkey{};
};
// The link group has come to its end; what still has to be sent was sent before.
struct Over {
    Reason reason = Reason::kLinkDown;
    std::string detail;
};
using Action = std::variant<Send, Confirmed, RkeyConfirmed, RkeyDeleted, Over>;
using Actions = std::vector<Action>;

class LinkMachine {
 public:
    enum class State : std::uint8_t { kConfirming, kAdding, kActive, kEnding, kOver };

    explicit LinkMachine(LinkTerms terms) : terms_(std::move(terms)) {}

    // The queue pair is connected.
    [[nodiscard]] Actions start(TimePoint now);
    [[nodiscard]] Actions message(Bytes bytes, TimePoint now);
    // `heard`: anything that grows with every message that arrives on the link.
    [[nodiscard]] Actions tick(TimePoint now, std::uint64_t heard);
    // An RMB has come, or is to go. Answered by RkeyConfirmed or RkeyDeleted, or by Over.
    [[nodiscard]] Actions confirm_rkey(RKey rkey, VirtualAddress address, TimePoint now);
    [[nodiscard]] Actions delete_rkey(RKey rkey, TimePoint now);
    // Ends the group: at once at the server, with the server's consent at the client.
    [[nodiscard]] Actions end(DeleteLinkReason reason, TimePoint now);
    // The link broke.
    [[nodiscard]] Actions down(std::string why);

    // RMBs of the peer, also those that CLC tells of. False: it has more than a group may have.
    bool know(RKey rkey);
    [[nodiscard]] bool knows(RKey rkey) const { return peer_rkeys_.contains(rkey); }

    [[nodiscard]] State state() const { return state_; }
    [[nodiscard]] const LinkTerms& terms() const { return terms_; }

 private:
    struct Exchange {
        RKey rkey{};
        VirtualAddress address{};
        bool deletes = false;
    };

    template <class M>
    [[nodiscard]] M request() const;
    template <class M>
    [[nodiscard]] M reply(M message) const;
    void send(Actions& out, const AnyMessage& message) const;
    void over(Actions& out, Reason reason, std::string detail);
    void activate(Actions& out, TimePoint now);
    void next_exchange(Actions& out, TimePoint now);

    void on(Actions& out, const ConfirmLink& m, TimePoint now);
    void on(Actions& out, const AddLink& m, TimePoint now);
    void on(Actions& out, const ConfirmRkey& m, TimePoint now);
    void on(Actions& out, const DeleteRkey& m, TimePoint now);
    void on(Actions& out, const DeleteLink& m, TimePoint now);
    void on(Actions& out, const TestLink& m, TimePoint now);
    void on(Actions& out, const ConfirmRkeyContinuation& m, TimePoint now);
    void on(Actions& out, const RequestAddLink& m, TimePoint now);
    void on(Actions&, const AddLinkContinuation&, TimePoint) {}  // for a link that was never agreed on

    LinkTerms terms_;
    State state_ = State::kConfirming;
    TimePoint deadline_ = TimePoint::max();  // of the state
    bool little_endian_ = false;
    bool eye_catchers_ = false;
    LinkId peer_id_{};
    std::uint8_t link_number_ = 1;

    std::deque<Exchange> exchanges_;  // M1: the first is under way
    TimePoint exchange_deadline_ = TimePoint::max();
    std::set<RKey> peer_rkeys_;

    std::uint64_t heard_ = 0;
    TimePoint heard_at_{};
    std::uint64_t tests_ = 0;
    std::array<std::uint8_t, 16> test_data_{};
    TimePoint test_deadline_ = TimePoint::max();
};

}  // namespace smc::llc
