// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a connection's session asks for on its way from "wanted" to "moving bytes", on either side. One answer to each,
// unless it says "No answer".
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "smc/clc/actions.h"
#include "smc/group/refusal.h"
#include "smc/time.h"

namespace smc::session {

// --- the TCP connection that CLC is spoken on ------------------------------------------------------------------------
// Client: connect to the server, with TCP option 254 in the SYN. Answer: connected() or connect_failed().
struct Connect {};
// Write a CLC message. No answer; clc_not_sent() if it cannot be written.
struct SendClc {
    clc::Message message;
};
// It is not wanted any more: reset it. No answer.
struct ResetClc {};

// --- SMC-D -----------------------------------------------------------------------------------------------------------
// A DMB that this peer can attach. At the server the peer must be reachable, too. Answer: dmb_registered() or
// dmb_refused().
struct RegisterDmb {
    Gid peer;
    Chid chid{};  // the fabric's
};
// Answer: dmb_attached() or dmb_not_attached().
struct AttachDmb {
    clc::SmcdPeer peer;
};

// --- SMC-R -----------------------------------------------------------------------------------------------------------
// An assignment in a link group with this peer. Answer: joined() or join_refused().
struct JoinGroup {
    clc::SmcrPeer peer;
    TimePoint deadline = kNever;
};
// The peer's end is known. Answer: link_ready() or link_failed().
struct AwaitLink {
    clc::SmcrPeer peer;
};
// Server: the client's agent says a first word on the link as soon as its application is connected. Answer:
// client_spoke().
struct AwaitClient {};

// --- the application -------------------------------------------------------------------------------------------------
// Client: finish its connect() by a leg. Answer: leg_connected() or leg_failed().
struct FinishConnect {};
// Server: connect to its listener, as far as it does not hear of it before Run or RunOnTcp. Answer:
// application_connected() or application_refused().
struct ConnectApplication {};

// --- the end of the session: one of these four, once. No answer ------------------------------------------------------
// The connection runs on SMC.
struct Run {
    clc::Outcome outcome;
};
// It runs on TCP, through the agent: a peer without an agent goes on on the connection that CLC was spoken on.
struct RunOnTcp {
    clc::Outcome outcome;
};
// The client's application does without us: its own SYN decides. Server: what there is of the application's connection
// is reset first, then the one that CLC was spoken on, which the client waits for.
struct LeaveToTcp {
    clc::Outcome outcome;
};
// There is none; what there was of it is to be reset.
struct Refuse {
    Reason reason = Reason::kNone;
    std::string detail;
};

// What the negotiation holds (a DMB, an assignment) is not needed; the outcome says whose word it was. No answer.
struct GiveBack {
    clc::Outcome outcome;
};
// What was learnt of the server. No answer.
struct RememberServer {
    enum class As : std::uint8_t {
        kCapable,  // connections to it need not ask
        kUnknown,  // it may have been capable
        kNotNow,   // it is not to be asked for a while, because of `reason`
        kPause,    // nor for some seconds, and longer each time: it said yes, and may have gone or be late
    };
    As as = As::kCapable;
    Reason reason = Reason::kNone;
};

using Action =
    std::variant<Connect, SendClc, ResetClc, RegisterDmb, AttachDmb, JoinGroup, AwaitLink, AwaitClient, FinishConnect,
                 ConnectApplication, Run, RunOnTcp, LeaveToTcp, Refuse, GiveBack, RememberServer>;
using Actions = std::vector<Action>;

}  // namespace smc::session
