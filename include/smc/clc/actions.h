// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the CLC handshakes answer.
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
    // First contact of SMC-R: the client connects its application behind the link, and tells its server's agent.
    [[nodiscard]] bool is_on_new_link() const { return kind == Kind::kSmcR && smcr.first_contact; }
};

struct Send {
    Message message;
};
// A DMB for this peer on that fabric, at the server. Answer with dmb_ready() or prepare_failed().
struct CreateDmb {
    Gid peer;
    Chid chid{};
};
// Answer with attached() or attach_failed().
struct AttachDmb {
    SmcdPeer peer;
};
// An RMBE for a connection with this peer; at the client, over the link that the server named. Answer with rmbe_ready()
// or prepare_failed().
struct PrepareRmbe {
    SmcrPeer peer;
};
// The peer's end is known. On first contact the link is to be connected and confirmed by LLC. Answer with link_ready()
// or link_failed(); meanwhile messages may still come.
struct AwaitLink {
    SmcrPeer peer;
};
struct Finish {
    Outcome outcome;
};
using Action = std::variant<Send, CreateDmb, AttachDmb, PrepareRmbe, AwaitLink, Finish>;
using Actions = std::vector<Action>;

}  // namespace smc::clc
