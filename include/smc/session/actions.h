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
// Client: connect to the server; with `offer`, TCP option 254 in the SYN. Answer: connected() or connect_failed().
struct Connect {
    bool offer = true;
};
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
};
// Answer: dmb_attached() or dmb_not_attached().
struct AttachDmb {
    clc::SmcdPeer peer;
};

// --- SMC-R -----------------------------------------------------------------------------------------------------------
// A seat in a link group with this peer. Answer: joined() or join_refused().
struct JoinGroup {
    clc::SmcrPeer peer;
    TimePoint deadline = kNever;
};
// The peer's end is known. Answer: link_ready() or link_failed().
struct AwaitLink {
    clc::SmcrPeer peer;
};

// --- the application -------------------------------------------------------------------------------------------------
// Client: finish its connect() against the local leg. Answer: leg_arrived() or leg_refused().
struct FinishConnect {};
// Client: its connect() fails with this errno. No answer.
struct FailConnect {
    int error = 0;
};
// Server: connect to its listener. Answer: application_connected() or application_refused().
struct ConnectApplication {};

// --- the end of the session: one of these three, once. No answer -----------------------------------------------------
// The connection runs on SMC.
struct Run {
    clc::Outcome outcome;
};
// It runs on TCP, through the agent.
struct RunOnTcp {
    clc::Outcome outcome;
};
// There is none; what there was of it is to be reset.
struct Refuse {
    Reason reason = Reason::kNone;
    std::string detail;
};

// What the negotiation holds (a DMB, a seat) is not needed; the outcome says whose word it was. No answer.
struct GiveBack {
    clc::Outcome outcome;
};
// Do not ask this server again for a while. No answer.
struct RememberIncapable {
    Reason reason = Reason::kNone;
};

using Action = std::variant<Connect, SendClc, ResetClc, RegisterDmb, AttachDmb, JoinGroup, AwaitLink, FinishConnect,
                            FailConnect, ConnectApplication, Run, RunOnTcp, Refuse, GiveBack, RememberIncapable>;
using Actions = std::vector<Action>;

}  // namespace smc::session
