// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Why a connection is not (or no longer) on SMC. Codes below 0x0a000000 are those that Linux puts into CLC Decline and
// that smcss shows; codes from 0x0a000000 on are the agent's own, and are sent to other agents only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace smc {

enum class Reason : std::uint32_t {
    kNone = 0,
    kOutOfMemory = 0x01010000,
    kTimeoutConfirmLink = 0x02010000,
    kTimeoutAddLink = 0x02020000,
    kConfiguration = 0x03000000,
    kPeerNoSmc = 0x03010000,
    kIpsec = 0x03020000,
    kNoDevice = 0x03030000,
    kNoSmcdDevice = 0x03030001,
    kNoSmcrDevice = 0x03030002,
    kNoIsmV2Support = 0x03030003,
    kNoV2Extension = 0x03030004,
    kNoSmcdV2Extension = 0x03030005,
    kNoSeid = 0x03030006,
    kNoSmcdV2Device = 0x03030007,
    kNoUeid = 0x03030008,
    kReleaseMismatch = 0x03030009,
    kMaxConnectionsMismatch = 0x0303000a,
    kMaxLinksMismatch = 0x0303000b,
    kModeMismatch = 0x03040000,
    kRmbEyeCatcher = 0x03050000,
    kOptionUnsupported = 0x03060000,
    kSubnetMismatch = 0x03070000,
    kVlanUnknown = 0x03080000,
    kIsmVlan = 0x03090000,
    kNoActiveLink = 0x030a0000,
    kNoServerLink = 0x030b0000,
    kVersionMismatch = 0x030c0000,
    kMaxDmb = 0x030d0000,
    kNoRoute = 0x030e0000,
    kDirectMismatch = 0x030f0000,
    kOutOfSync = 0x04000000,
    kPeerDeclined = 0x05000000,
    kInternal = 0x09990000,
    kRtokenFailed = 0x09990001,
    kLinkNotReady = 0x09990002,
    kRmbNotRegistered = 0x09990003,

    // ours: a decision of this node
    kPeerEchoes = 0x0a010001,        // the server repeats unknown TCP options
    kOptionLost = 0x0a010002,        // the server answers only a SYN without the option
    kAnswerLost = 0x0a010003,        // the client has not seen the option in the SYN-ACK
    kOptionTaken = 0x0a010004,       // another program on this node kept the option out of a SYN or SYN-ACK
    kHandshakeTimeout = 0x0a020000,  // a CLC message did not come in time
    kBudget = 0x0a020001,            // the attempt as a whole took too long
    kProtocolError = 0x0a030000,     // RFC 7609 appendix C.6
    kPeerClosed = 0x0a040000,        // TCP connection ended during the handshake
    kConnectFailed = 0x0a050000,     // the CLC socket's connect() failed
    kApplicationGone = 0x0a060000,   // the application gave up before it was connected
    kServerRefused = 0x0a070000,     // the server application did not take the connection
    kLimit = 0x0a080000,             // a configured limit was reached
    kLocalPorts = 0x0a080001,        // the connections of a namespace use all the local ports that they may
    kFabric = 0x0a090000,            // the ISM fabric failed
    kPeerAborted = 0x0a0a0000,       // peer set the abnormal close flag
    kApplicationReset = 0x0a0a0001,  // the application (or its socket) was reset
    kPeerReset = 0x0a0a0002,         // the CLC socket's connection ended unexpectedly
    kBadCursor = 0x0a0b0000,         // peer published cursors outside the buffer
    kRmbeTakenAgain = 0x0a0b0001,    // peer gave its RMBE to another connection
    kCloseTimeout = 0x0a0c0000,      // peer did not complete the close handshake
    kStopped = 0x0a0d0000,           // the agent stops, or takes no connections for now
    kLinkDown = 0x0a0e0000,          // the link group lost its link
    kLlcViolation = 0x0a0e0001,      // the peer broke the rules of LLC or CDC
    kDataLost = 0x0a0e0002,          // failover: a message of the peer never came (RFC 7609 section 4.6.1)
    kNoLeg = 0x0a100000,             // the leg could not be connected
    kPeerClosedEarly = 0x0a0f0000,   // the application wrote after the peer had closed
};

// Short name for tables and counters ("peer_no_smc"); "0x..." for codes of foreign systems.
std::string reason_name(Reason reason);
// One sentence for a person.
std::string_view reason_text(Reason reason);
// The same sentence, if the code is one of those that Linux sends.
std::optional<std::string_view> linux_reason_text(Reason reason);

}  // namespace smc
