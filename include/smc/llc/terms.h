// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What LLC needs to know about a link group and its links, and what it answers.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "smc/time.h"
#include "smc/wire/llc.h"
#include "smc/wire/qp_end.h"
#include "smc/wire/reason.h"

namespace smc::llc {

// The number of the link that a link group begins with, and of the second one.
inline constexpr std::uint8_t kFirstLink = 1;
inline constexpr std::uint8_t kSecondLink = 2;

struct GroupTerms {
    bool server = false;
    std::uint8_t version = 2;
    std::uint8_t max_links = 1;  // as agreed in CLC
    std::uint8_t max_connections = 255;
    bool negotiated = false;    // both were, by CLC (release 1 on), and CONFIRM LINK repeats them
    bool eye_catchers = false;  // this side's RMBEs have them; they are used unless neither side has
    // What a server must offer before release 1, although it has no second path (section 3.5.1.6).
    struct Second {
        QpEnd end;
        RTokenPair rmb;  // the first one, over that link; told in version 2
    };
    std::optional<Second> second;
    // Of first contact. A client waits half as long again, to hear from a server that gave up; an established link has
    // twice the time, because its queue pair may be retransmitting.
    std::chrono::milliseconds reply_timeout{2000};
    std::chrono::milliseconds test_interval{30000};
};

struct LinkTerms {
    std::uint8_t number = kFirstLink;
    QpEnd own, peer;  // as CLC, or ADD LINK, told
    LinkId own_id{};
    bool direct = false;  // without a router between the peers: then the MAC address counts
};

// --- actions --------------------------------------------------------------------------------------------------------
// To be sent over that link.
struct Send {
    std::uint8_t link = kFirstLink;
    Message message;
};
// The link group may carry connections.
struct Confirmed {
    bool eye_catchers = false;  // both sides' RMBEs begin with one
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
    bool may_decline = false;  // first contact: CLC may still fall back (C.2, C.3)
};
using Action = std::variant<Send, Confirmed, RkeyConfirmed, RkeyDeleted, Over>;
using Actions = std::vector<Action>;

}  // namespace smc::llc
