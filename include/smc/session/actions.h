// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Actions that the session of a connection asks for, on either side, on its way from "wanted" to "moving bytes". Each
// action has one answer, unless it says "No answer".
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "smc/clc/actions.h"
#include "smc/group/refusal.h"
#include "smc/time.h"

namespace smc::session {

// --- the CLC socket: the TCP connection that carries CLC -------------------------------------------------------------
// Client: connect to the server, with TCP option 254 in the SYN. Answer: connected() or connect_failed().
struct Connect {};
// Write a CLC message. No answer; clc_not_sent() if it cannot be written.
struct SendClc {
    clc::Message message;
};
// Reset the CLC socket: it is not wanted any more. `first`: a message that the peer should still read, if it can be
// sent. No answer.
struct ResetClc {
    std::optional<clc::Message> first{};
};

// --- SMC-D -----------------------------------------------------------------------------------------------------------
// Register a DMB that this peer can attach; refused if the peer cannot be reached on the fabric. Answer:
// dmb_registered() or dmb_refused().
struct RegisterDmb {
    Gid peer;
    Chid chid{};  // the fabric's
};
// Attach the peer's DMB. Answer: dmb_attached() or dmb_not_attached().
struct AttachDmb {
    clc::SmcdPeer peer;
};

// --- SMC-R -----------------------------------------------------------------------------------------------------------
// Get an assignment in a link group with this peer. Answer: joined() or join_refused().
struct JoinGroup {
    clc::SmcrPeer peer;
    TimePoint deadline = kNever;
};
// Wait for the link: the peer's end of it is known now. Answer: link_ready() or link_failed().
struct AwaitLink {
    clc::SmcrPeer peer;
};
// Server: wait for the first message on the link, which the client's agent sends as soon as its application is
// connected. Answer: client_announced().
struct AwaitClient {};

// --- the application -------------------------------------------------------------------------------------------------
// Client: complete the application's connect() by a leg. Answer: leg_connected(), leg_late() or leg_failed().
struct FinishConnect {};
// Server: connect a leg to the application's listener, and hold it: the application must not see it before Run or
// RunOnTcp. Answer: application_connected() or application_refused().
struct ConnectApplication {};
// Client: end the application's socket, whose connect() can no longer succeed: it fails now. No answer.
struct EndApplication {};

// --- the end of the session: one of these four, once. No answer ------------------------------------------------------
// The connection runs on SMC.
struct Run {
    clc::Outcome outcome;
};
// The connection runs on TCP, through the agent: a peer without an agent continues on its end of the CLC socket.
struct RunOnTcp {
    clc::Outcome outcome;
};
// The connection is left to TCP: the client's application connects by its own SYN. Server: reset the leg, if there is
// one, and then the CLC socket; the client waits for that.
struct LeaveToTcp {
    clc::Outcome outcome;
};
// The connection fails; what exists of it is to be reset.
struct Refuse {
    Reason reason = Reason::kNone;
    std::string detail;
};

// Release what the negotiation holds (a DMB, an assignment); `outcome` says how the negotiation ended. No answer.
struct GiveBack {
    clc::Outcome outcome;
};
// Remember what was learnt about the server. No answer.
struct RememberServer {
    enum class As : std::uint8_t {
        kCapable,  // it speaks SMC: the next connections to it need not ask first
        kUnknown,  // it may or may not speak SMC: the next connection asks again
        kNotNow,   // it is not to be asked for a while, because of `reason`
        kPause,    // it is not asked for some seconds, longer each time: it speaks SMC, but was late, has gone, or
                   // refused
    };
    As as = As::kCapable;
    Reason reason = Reason::kNone;
};

using Action =
    std::variant<Connect, SendClc, ResetClc, RegisterDmb, AttachDmb, JoinGroup, AwaitLink, AwaitClient, FinishConnect,
                 ConnectApplication, EndApplication, Run, RunOnTcp, LeaveToTcp, Refuse, GiveBack, RememberServer>;
using Actions = std::vector<Action>;

}  // namespace smc::session
