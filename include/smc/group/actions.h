// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Actions of SMC-R link groups: requests to the devices and the data path, and notifications to the connections.
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
// The number that identifies a connection as a member of a link group.
enum class MemberId : std::uint64_t {};

enum class BufferKind : std::uint8_t {
    kRmb,   // the peer writes into it
    kSend,  // data is only sent from it
};

// A RoCE port of this node that a link may use.
struct LocalPort {
    std::string device;
    std::uint8_t number = 1;
    RoceGid gid;
    std::uint8_t version = 2;  // the version of SMC-R that uses this GID
    Mac mac{};
    std::string pnet_id{};   // the port's physical network; empty: that network has no name
    std::uint16_t vlan = 0;  // the VLAN ID (802.1Q) of packets from this GID; 0: they have no tag

    [[nodiscard]] bool is(const LocalPort& other) const { return device == other.device && number == other.number; }
};

// Bytes of the elements that a member wants, a power of two times 16 KiB each.
struct ElementBytes {
    std::uint32_t rmbe = 0, send = 0;
};
inline constexpr std::uint32_t kSmallestElement = 16 * 1024;

// The link, RMBE, send element and alert token of a member.
struct Assignment {
    std::uint8_t link = 1;  // CLC names this link, and the connection begins on it
    AlertToken token{};
    BufferId rmb{};
    std::uint8_t rmbe = 0;       // counted from 0; CLC counts from 1
    bool rmbe_was_used = false;  // it holds bytes of an earlier connection: zero them (RFC 7609 section 4.4.1)
    BufferId send{};
    std::uint8_t send_element = 0;
};

// --- requests -------------------------------------------------------------------------------------------------------
// Create a queue pair on that port. Answer: link_created() or link_refused().
struct CreateLink {
    GroupId group{};
    std::uint8_t link = 1;
    LocalPort port;
    RoceGid peer_gid;  // of the peer's port to which the link will lead; if that is not known yet: of the first link's
};
// Connect the link's queue pair to the peer's, then hand the link to the data path. Answer: link_connected() or
// link_refused().
struct ConnectLink {
    GroupId group{};
    std::uint8_t link = 1;
    QpEnd peer;
};
// Connections may use the link from now on.
struct UseLink {
    GroupId group{};
    std::uint8_t link = 1;
};
// Move the connections of this link to another one; this link still works.
struct RetireLink {
    GroupId group{};
    std::uint8_t link = 1;
};
// End a link that no connection uses any more: when its queued messages have been sent, or `at_once` if it was never up
// or does not work.
struct EndLink {
    GroupId group{};
    std::uint8_t link = 1;
    std::string why;
    bool at_once = false;
};
// Register the buffer for that link; allocate its memory first if it has none. Answer: buffer_registered() or
// buffer_refused().
struct RegisterBuffer {
    GroupId group{};
    BufferId buffer{};
    BufferKind kind{};
    std::uint8_t link = 1;
    std::uint32_t element_bytes = 0;
    std::size_t elements = 0;
};
// The RKey and address of an RMB of the peer, for each link on which they are known.
struct KnowRmb {
    GroupId group{};
    llc::RTokenSet tokens;
};
struct ForgetRmb {
    GroupId group{};
    llc::RTokenSet tokens;
};
// Free a buffer that no connection uses; the peer does not write into it any more.
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
// Keep CDC messages for this token from now on, even before the connection runs (RFC 7609 section 3.5.2.4).
struct OpenToken {
    GroupId group{};
    AlertToken token{};
};
// Drop a token that the peer was never told of.
struct ForgetToken {
    GroupId group{};
    AlertToken token{};
};
// Keep the token and RMBE of a member that has left, because the peer may still write there. Call element_returned()
// when the peer is done with the RMBE, or the group has ended.
struct LingerToken {
    GroupId group{};
    Assignment assignment;
};
// End this connection before the next one begins: the peer has given the RMBE that it writes into to another connection
// (RFC 7609 section 4.4.2), or has deleted that RMB.
struct EndConnection {
    GroupId group{};
    AlertToken token{};
};
// End all links when their queued messages have been sent; connections that still run end with them.
struct EndGroup {
    GroupId group{};
    std::string why;
};
// Free everything that belongs to the group.
struct ForgetGroup {
    GroupId group{};
};

// --- notifications --------------------------------------------------------------------------------------------------
// The member has an RMBE; on first contact at the client, the queue pair is connected, too.
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
// A further link is up, or a link is gone while others remain.
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
    unsigned connections = 0;  // running connections, which are lost with the group
};

using Action = std::variant<CreateLink, ConnectLink, UseLink, RetireLink, EndLink, RegisterBuffer, KnowRmb, ForgetRmb,
                            DropBuffer, SendMessage, OpenToken, ForgetToken, LingerToken, EndConnection, EndGroup,
                            ForgetGroup, Joined, JoinRefused, LinkReady, LinkFailed, GroupUp, LinkChanged, GroupOver>;
using Actions = std::vector<Action>;

}  // namespace smc::group
