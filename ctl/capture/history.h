// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The histories of connections and link groups in a capture: the facts that the dissector finds, and the sentences that
// the summary makes of them. Facts that the capture does not show are reported as unknown.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "os/endpoint.h"
#include "smc/wire/cdc.h"
#include "smc/wire/clc.h"
#include "smc/wire/qp_end.h"

namespace smc::capture {

// One peer's side of a connection over SMC-R.
struct Half {
    AlertToken token{};
    BufferSize rmbe_size{};
    // How far the other peer has written into this side's RMBE, by its CDC messages.
    std::optional<cdc::Cursor> producer;
    std::uint32_t first_byte = 0;  // of the data area: 4 with an eye catcher (RFC 7609), 0 without (Linux)
    std::uint64_t received = 0;    // bytes
    bool closed = false;           // this side has sent that it closed the connection
};

struct Connection {
    Endpoint client, server;
    std::uint64_t first_frame = 0, last_frame = 0;
    bool from_start = true;          // its SYN is in the capture
    bool client_seen = false;        // the client sent something ...
    bool client_acked = false;       // ... that shows that the server had answered
    bool server_seen = false;        // the server sent something
    bool server_answered = false;    // a SYN-ACK was seen ...
    bool server_has_option = false;  // ... with option 254
    std::unique_ptr<clc::Proposal> proposal;
    std::unique_ptr<clc::Acceptance> accept, confirm;
    struct Declined {
        clc::Decline message;
        bool by_server = false;
        bool late = false;  // after the Confirm
    };
    std::optional<Declined> decline;
    std::string broken;                               // describes invalid bytes where CLC must be
    bool has_hole = false;                            // part of a stream is not in the capture ...
    bool client_waits = false, server_waits = false;  // ... or has not come yet
    bool data_follows = false;                        // TCP data was seen, as after a Decline that was not captured
    std::optional<std::size_t> link_group;
    Half client_half, server_half;
    bool client_fin = false, server_fin = false;
    std::optional<bool> reset_by_server;    // by a TCP reset
    std::optional<bool> aborted_by_server;  // by a CDC message; the first abort counts, the second answers it
};

// Whether only one direction was captured, although the other must have existed.
bool one_direction(const Connection& connection);

struct Link {
    std::uint8_t number = 0;
    QpEnd server, client;
    clc::Mtu mtu{};  // the smaller one of both ends
    bool confirmed = false;
    std::string deleted;  // why; empty: it was not
};

struct LinkGroup {
    static constexpr std::size_t kMaxLinks = 64;  // remembered, deleted ones included

    std::string variant;  // "SMC-Rv2.1"
    std::uint8_t version = clc::kVersion2;
    bool from_start = true;  // its first contact is in the capture
    PeerId server{}, client{};
    std::string server_host, client_host;
    std::vector<Link> links;
    std::uint64_t rejected_links = 0;
    std::string rejection;  // why the last one was rejected
    std::string ended;
    // By CONFIRM LINK: this side's RMBEs have no eye catcher.
    std::optional<bool> server_plain, client_plain;
};

// A queue pair to which SMC messages were sent and that no captured CLC names.
struct UnnamedQp {
    static constexpr std::size_t kMaxTokens = 4096;  // remembered

    RoceGid gid;
    Qpn qpn{};
    RoceGid peer;                 // the sender of the messages ...
    std::optional<Qpn> peer_qpn;  // ... and its queue pair, from its CONFIRM LINK
    std::uint64_t first_frame = 0, last_frame = 0;
    std::uint64_t llc = 0, cdc = 0;  // messages
    std::set<AlertToken> tokens;     // of connections
    std::uint8_t version = 0;        // of its LLC messages; 0: none was seen
};

// "SMC-Rv2.1", "SMC-Dv1", in the order in which a server selects.
std::vector<std::string> offers(const clc::Proposal& proposal);
// The variant that an Accept chose. An Accept without an FCE does not tell the release, which is the link group's.
std::string chosen(const clc::Acceptance& acceptance);
std::string chosen(const Connection& connection, const LinkGroup* group);

std::string qp_text(const RoceGid& gid, std::optional<Qpn> qpn);  // "10.0.0.1 qp 0x000011", "10.0.0.1 qp unknown"

// Sentences for the summary. `group` is the connection's, if it has one.
std::string proposed(const Connection& connection);
std::string answered(const Connection& connection, const LinkGroup* group);
std::string carried(const Connection& connection);
std::string ended(const Connection& connection);    // empty: not in this capture
std::string missing(const Connection& connection);  // which TCP packets; empty: none, as far as the capture shows

}  // namespace smc::capture
