// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a capture tells about connections and link groups: facts as the dissector finds them, for the summary.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "smc/cdc.h"
#include "smc/clc.h"
#include "smc/endpoint.h"

namespace smc::capture {

// One peer's side of a connection over SMC-R.
struct Half {
    AlertToken token{};
    BufferSize rmbe_size{};
    // Where the other peer has written to in this side's RMBE, by its CDC messages.
    std::optional<cdc::Cursor> producer;
    std::uint32_t first_byte = 0;  // of the data area: 4 with an eye catcher (RFC 7609), 0 without (Linux)
    std::uint64_t received = 0;    // bytes
    bool sending_done = false, closed = false, aborted = false;  // flags that this side has sent
};

struct Connection {
    Endpoint client, server;
    std::uint64_t first_frame = 0, last_frame = 0;
    bool server_answered = false;  // a SYN-ACK was seen ...
    bool server_has_option = false;  // ... with option 254
    std::optional<clc::Proposal> proposal;
    std::optional<clc::Acceptance> accept, confirm;
    struct Declined {
        clc::Decline message;
        bool by_server = false;
        bool late = false;  // behind the Confirm
    };
    std::optional<Declined> decline;
    std::optional<std::string> broken;  // something that is no CLC where CLC must stand
    std::optional<std::size_t> link_group;
    Half client_half, server_half;
    bool client_fin = false, server_fin = false;
    std::optional<bool> reset_by_server;
};

struct Link {
    struct End {
        RoceGid gid;
        Qpn qpn{};
    };
    std::uint8_t number = 0;
    End server, client;
    clc::Mtu mtu{};  // the smaller one
    bool confirmed = false;
    std::optional<std::string> deleted;  // why
};

struct LinkGroup {
    std::string variant;  // "SMC-Rv2.1"
    std::uint8_t version = clc::kVersion2;
    PeerId server{}, client{};
    std::string server_host, client_host;
    std::vector<Link> links;
    std::vector<std::string> events;  // "ADD LINK rejected by the client: no alternate path available"
    std::optional<std::string> ended;
};

// "SMC-Rv2.1, SMC-Dv1", in the order in which a server selects.
std::vector<std::string> offers(const clc::Proposal& proposal);
// One of those.
std::string chosen(const clc::Acceptance& acceptance, const std::optional<clc::Proposal>& proposal);

// Sentences for the summary.
std::string proposed(const Connection& connection);
std::string answered(const Connection& connection);
std::string ended(const Connection& connection);

}  // namespace smc::capture
