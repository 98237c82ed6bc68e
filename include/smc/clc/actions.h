// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The outcome of a CLC handshake, and the actions that the handshakes answer with.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "smc/clc/node.h"
#include "smc/wire/reason.h"

namespace smc::clc {

struct Outcome {
    enum class Kind : std::uint8_t {
        kSmcD,       // payload moves over the DMBs
        kSmcR,       // payload moves over the link
        kFallBack,   // the same TCP connection goes on, nothing lost
        kTerminate,  // the TCP connection must end
    };
    Kind kind = Kind::kTerminate;
    Reason reason = Reason::kNone;
    std::string detail{};  // for the log: the fault, the peer's diagnosis
    bool peer_out_of_sync = false;
    Reason peer_reason = Reason::kNone;  // with kPeerDeclined
    SmcdPeer smcd{};                     // kSmcD, or what was being agreed on
    SmcrPeer smcr{};                     // kSmcR, likewise

    [[nodiscard]] bool is_smc() const { return kind == Kind::kSmcD || kind == Kind::kSmcR; }
    // First contact of SMC-R: the client connects its application only after the link is confirmed, and then tells the
    // server's agent.
    [[nodiscard]] bool is_on_new_link() const { return kind == Kind::kSmcR && smcr.first_contact; }
};

// The outcome after a Decline of the peer; H1: no Decline answers it.
[[nodiscard]] Outcome declined_by_peer(const Decline& decline);

struct Send {
    Message message;
};
// Server: register a DMB for this peer on that fabric. Answer with dmb_ready() or prepare_failed().
struct CreateDmb {
    Gid peer;
    Chid chid{};
};
// Attach the peer's DMB. Answer with attached() or attach_failed().
struct AttachDmb {
    SmcdPeer peer;
};
// Get an RMBE for a connection with this peer; at the client, on the link that the server named. Answer with
// rmbe_ready() or prepare_failed().
struct PrepareRmbe {
    SmcrPeer peer;
};
// The peer's end of the link is known; on first contact, connect the link and let LLC confirm it. Answer with
// link_ready(), link_refused() or link_failed(); CLC messages may still come meanwhile.
struct AwaitLink {
    SmcrPeer peer;
};
struct Finish {
    Outcome outcome;
};
using Action = std::variant<Send, CreateDmb, AttachDmb, PrepareRmbe, AwaitLink, Finish>;
using Actions = std::vector<Action>;

}  // namespace smc::clc
