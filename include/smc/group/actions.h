// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What SMC-R link groups ask of the devices and tell to the connections.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "smc/clc/node.h"
#include "smc/group/refusal.h"
#include "smc/llc/rtokens.h"
#include "smc/wire/cdc.h"
#include "smc/wire/llc.h"

namespace smc::group {

// A link group of this node; never used twice.
enum class GroupId : std::uint32_t {};
// A buffer of a link group: an RMB, or memory to send from. Never used twice in its group.
enum class BufferId : std::uint32_t {};
// Who joins: the connection's own number.
enum class MemberId : std::uint64_t {};

enum class BufferKind : std::uint8_t {
    kRmb,   // the peer writes into it
    kSend,  // it is only sent from
};

// A RoCE port of this node that a link may use.
struct LocalPort {
    std::string device;
    std::uint8_t number = 1;
    RoceGid gid;
    std::uint8_t version = 2;  // of SMC-R: the GID is RoCEv1's or RoCEv2's
    Mac mac{};
    std::string pnet_id{};  // of the physical network that it is on; empty: of none that has a name

    [[nodiscard]] bool is(const LocalPort& other) const { return device == other.device && number == other.number; }
};

// Which elements a member uses.
struct Assignment {
    std::uint8_t link = 1;  // that CLC names, and that the connection begins on
    AlertToken token{};
    BufferId rmb{};
    std::uint8_t rmbe = 0;       // from 0; CLC counts from 1
    bool rmbe_was_used = false;  // its last user's bytes are in it: zero them (RFC 7609 section 4.4.1)
    BufferId send{};
    std::uint8_t send_element = 0;
};

// --- what is to be done ---------------------------------------------------------------------------------------------
// A queue pair on that port. Answer: link_created() or link_refused().
struct CreateLink {
    GroupId group{};
    std::uint8_t link = 1;
    LocalPort port;
};
// Connect it, and once that is done hand it to the data path. Answer: link_connected() or link_refused().
struct ConnectLink {
    GroupId group{};
    std::uint8_t link = 1;
    QpEnd peer;
};
// Connections may use it from now on.
struct UseLink {
    GroupId group{};
    std::uint8_t link = 1;
};
// Connections leave it for another one; it works still.
struct RetireLink {
    GroupId group{};
    std::uint8_t link = 1;
};
// Nobody uses it any more: it ends when what was sent last has left, or, where it does not work, at once.
struct EndLink {
    GroupId group{};
    std::uint8_t link = 1;
    std::string why;
    bool at_once = false;
};
// Allocate memory, unless this buffer has some, and register it for that link. Answer: buffer_registered() or
// buffer_refused().
struct RegisterBuffer {
    GroupId group{};
    BufferId buffer{};
    BufferKind kind{};
    std::uint8_t link = 1;
};
// How an RMB of the peer is reached, over every link that is known.
struct KnowRmb {
    GroupId group{};
    llc::RTokenSet tokens;
};
struct ForgetRmb {
    GroupId group{};
    llc::RTokenSet tokens;
};
// Nobody uses it any more, and the peer knows.
struct DropBuffer {
    GroupId group{};
    BufferId buffer{};
};
// An LLC message, or the last CDC message of a connection that never ran.
struct SendMessage {
    GroupId group{};
    std::uint8_t link = 1;
    std::vector<std::uint8_t> bytes;
};
// From now on keep what comes for this token (RFC 7609 section 3.5.2.4).
struct OpenToken {
    GroupId group{};
    AlertToken token{};
};
// The peer never learnt of it.
struct ForgetToken {
    GroupId group{};
    AlertToken token{};
};
// The peer may write into its RMBE: element_returned() when it is done with it, or with the link.
struct LingerToken {
    GroupId group{};
    Assignment assignment;
};
// The peer has given the RMBE that this connection writes into to another one: it ends, before that one begins (RFC
// 7609 section 4.4.2).
struct EndConnection {
    GroupId group{};
    AlertToken token{};
};
// All links end when what was sent last has left, and every connection that still runs with them.
struct EndGroup {
    GroupId group{};
    std::string why;
};
// Everything of the group can go.
struct ForgetGroup {
    GroupId group{};
};

// --- what there is to tell ------------------------------------------------------------------------------------------
// The member has an RMBE; on first contact at the client, the link is connected, too.
struct Joined {
    MemberId member{};
    GroupId group{};
    Assignment assignment;
    clc::LocalRmbe local;
};
struct JoinRefused {
    MemberId member{};
    Refusal refusal{};
    std::string detail;
};
struct LinkReady {
    MemberId member{};
};
struct LinkFailed {
    MemberId member{};
    Reason reason = Reason::kLinkDown;
    std::string detail;
    bool may_decline = false;  // first contact: a CLC Decline may still be sent (C.2)
};
struct GroupUp {
    GroupId group{};
};
// A further link is up, or one is gone while others remain.
struct LinkChanged {
    GroupId group{};
    std::uint8_t link = 1;
    bool up = false;
    std::string why;
};
struct GroupOver {
    GroupId group{};
    RoceGid peer;
    Reason reason = Reason::kNone;
    std::string detail;
    unsigned connections = 0;  // that are lost with it
};

using Action = std::variant<CreateLink, ConnectLink, UseLink, RetireLink, EndLink, RegisterBuffer, KnowRmb, ForgetRmb,
                            DropBuffer, SendMessage, OpenToken, ForgetToken, LingerToken, EndConnection, EndGroup,
                            ForgetGroup, Joined, JoinRefused, LinkReady, LinkFailed, GroupUp, LinkChanged, GroupOver>;
using Actions = std::vector<Action>;

}  // namespace smc::group
