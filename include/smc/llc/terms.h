// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Facts about a link group and its links that LLC needs, and the actions that it answers with.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "smc/llc/rtokens.h"
#include "smc/time.h"
#include "smc/wire/llc.h"
#include "smc/wire/qp_end.h"
#include "smc/wire/reason.h"

namespace smc::llc {

// The number of the link that a link group begins with.
inline constexpr std::uint8_t kFirstLink = 1;
// Links of a group at once: two, and a third that takes the place of an asymmetric one (RFC 7609 section 2.2.1).
inline constexpr std::size_t kMostLinks = 3;

struct GroupTerms {
    bool server = false;
    std::uint8_t version = 2;
    std::uint8_t max_links = 1;  // as agreed in CLC
    std::uint8_t max_connections = 255;
    bool negotiated = false;    // CLC agreed on both maxima (release 1 on), and CONFIRM LINK repeats them
    bool eye_catchers = false;  // this side's RMBEs have them; they are used if both sides have them, see ConfirmLink
    // Timeout of first contact. A client waits half as long again, so that it hears from a server that gave up. On an
    // established link the timeout is twice as long, because the queue pair may be retransmitting.
    std::chrono::milliseconds reply_timeout{2000};
    // How long each side may hold up first contact for the second link: the client until ADD LINK comes, and again
    // until it has connected its queue pair; the server until the link is confirmed, and the client half as long again.
    // The first connection waits meanwhile, and the first link is enough for it; the second link is tried again later.
    std::chrono::milliseconds second_link{300};
    std::chrono::milliseconds test_interval{30000};
};

struct LinkTerms {
    std::uint8_t number = kFirstLink;
    QpEnd own, peer;  // as CLC, or ADD LINK, told
    LinkId own_id{};
    bool direct = false;  // without a router between the peers: then the MAC address counts
};

// --- actions --------------------------------------------------------------------------------------------------------
// Send this message over that link.
struct Send {
    std::uint8_t link = kFirstLink;
    Message message;
};
// The link group may carry connections.
struct Confirmed {
    bool eye_catchers = false;  // both sides' RMBEs begin with one
};
// Server, first contact: a second link is to be offered. Answer: offer_link() or no_link().
struct WantLink {};
// Client: the server offers a link; `peer` is its end. Answer: accept_link(), with a queue pair that is connected to
// that end, or reject_link().
struct LinkOffered {
    std::uint8_t number = 0;
    std::uint8_t over = 0;  // the link that the offer came over
    QpEnd peer;
    RoceGid target;  // the port of this node that the server prefers; may be zero
};
// Server: the client has accepted. Answer: link_connected() or link_down().
struct LinkAccepted {
    std::uint8_t number = 0;
    QpEnd peer;
};
// The link may carry connections.
struct LinkUp {
    std::uint8_t number = 0;
    LinkId peer_id{};
};
// No connection may use the link any more, although it still works.
struct LinkRetired {
    std::uint8_t number = 0;
};
// The link is gone, or never came to be.
struct LinkGone {
    std::uint8_t number = 0;
    std::string why;
};
// The attempt to add a link is over. `unlikely`: the next attempt will fail, too, unless something changes at either
// end.
struct AddLinkOver {
    bool added = false;
    bool unlikely = false;
};
// Server: the client says that it has another port, or which ports it has (version 2).
struct LinkWanted {
    std::vector<RoceGid> gids;
};
// How an RMB of the peer is reached over every link that is known.
struct PeerRmb {
    RTokenSet tokens;
};
// The peer has deleted an RMB: it has no connection there any more.
struct PeerRmbGone {
    RTokenSet tokens;
};
struct RkeyConfirmed {
    RmbId rmb{};
    bool accepted = false;
};
struct RkeyDeleted {
    RmbId rmb{};
};
// The link group has ended; its last messages are in Send actions before this one.
struct Over {
    Reason reason = Reason::kLinkDown;
    std::string detail;
    bool may_decline = false;  // first contact: CLC may still fall back (C.2, C.3)
};
using Action = std::variant<Send, Confirmed, WantLink, LinkOffered, LinkAccepted, LinkUp, LinkRetired, LinkGone,
                            AddLinkOver, LinkWanted, PeerRmb, PeerRmbGone, RkeyConfirmed, RkeyDeleted, Over>;
using Actions = std::vector<Action>;

}  // namespace smc::llc
