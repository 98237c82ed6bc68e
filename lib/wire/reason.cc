// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/wire/reason.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace smc {

namespace {

struct Entry {
    Reason reason;
    const char* name;
    const char* text;
};

constexpr std::array kEntries{
    Entry{Reason::kNone, "none", "no error"},
    Entry{Reason::kOutOfMemory, "out_of_memory", "no memory for the buffers"},
    Entry{Reason::kTimeoutConfirmLink, "timeout_confirm_link", "time-out at CONFIRM LINK"},
    Entry{Reason::kTimeoutAddLink, "timeout_add_link", "time-out at ADD LINK"},
    Entry{Reason::kConfiguration, "configuration", "configuration forbids it"},
    Entry{Reason::kPeerNoSmc, "peer_no_smc", "peer did not answer TCP option 254"},
    Entry{Reason::kIpsec, "ipsec", "IPsec policy in place"},
    Entry{Reason::kNoDevice, "no_device", "no SMC device for what was offered"},
    Entry{Reason::kNoSmcdDevice, "no_smcd_device", "no SMC-D device"},
    Entry{Reason::kNoSmcrDevice, "no_smcr_device", "no SMC-R device"},
    Entry{Reason::kNoIsmV2Support, "no_ism_v2", "no ISMv2 support"},
    Entry{Reason::kNoV2Extension, "no_v2_extension", "Proposal has no V2 extension"},
    Entry{Reason::kNoSmcdV2Extension, "no_smcd_v2_extension", "Proposal has no SMC-Dv2 extension"},
    Entry{Reason::kNoSeid, "no_seid", "the peer wants an SEID"},
    Entry{Reason::kNoSmcdV2Device, "no_smcd_v2_device", "no ISM fabric in common"},
    Entry{Reason::kNoUeid, "no_ueid", "no EID in common"},
    Entry{Reason::kReleaseMismatch, "release_mismatch", "release of the peer's answer does not fit"},
    Entry{Reason::kMaxConnectionsMismatch, "max_connections_mismatch", "the maximum of connections is not acceptable"},
    Entry{Reason::kMaxLinksMismatch, "max_links_mismatch", "the maximum of links is not acceptable"},
    Entry{Reason::kModeMismatch, "mode_mismatch", "no SMC type in common"},
    Entry{Reason::kRmbEyeCatcher, "rmb_eye_catcher", "the peers disagree on eye catchers in RMBs"},
    Entry{Reason::kOptionUnsupported, "option_unsupported", "socket option without SMC counterpart"},
    Entry{Reason::kSubnetMismatch, "subnet_mismatch", "not in one IP subnet"},
    Entry{Reason::kVlanUnknown, "vlan_unknown", "the VLAN of the connection's device could not be determined"},
    Entry{Reason::kIsmVlan, "ism_vlan", "the ISM device does not take the VLAN"},
    Entry{Reason::kNoActiveLink, "no_active_link", "link group without an active link"},
    Entry{Reason::kNoServerLink, "no_server_link", "the server's link is not known here"},
    Entry{Reason::kVersionMismatch, "version_mismatch", "no SMC version in common"},
    Entry{Reason::kMaxDmb, "max_dmb", "the limit of DMBs is exceeded"},
    Entry{Reason::kNoRoute, "no_route", "no route to the peer's RoCEv2 GID"},
    Entry{Reason::kDirectMismatch, "direct_mismatch", "peers disagree whether the link is direct"},
    Entry{Reason::kOutOfSync, "out_of_sync", "peers disagree about a first contact"},
    Entry{Reason::kPeerDeclined, "peer_declined", "peer declined"},
    Entry{Reason::kInternal, "internal", "internal error"},
    Entry{Reason::kRtokenFailed, "rtoken_failed", "the peer's RMB could not be accepted"},
    Entry{Reason::kLinkNotReady, "link_not_ready", "the queue pair could not be made ready"},
    Entry{Reason::kRmbNotRegistered, "rmb_not_registered", "the RMB could not be registered"},
    Entry{Reason::kPeerEchoes, "peer_echoes", "peer repeats unknown TCP options"},
    Entry{Reason::kOptionLost, "option_lost", "only a SYN without the option was answered"},
    Entry{Reason::kAnswerLost, "answer_lost", "option 254 is removed from SYN-ACKs on the way to the client"},
    Entry{Reason::kOptionTaken, "option_taken",
          "another program on this node keeps option 254 out of SYNs or SYN-ACKs"},
    Entry{Reason::kHandshakeTimeout, "handshake_timeout", "a CLC message did not come in time"},
    Entry{Reason::kBudget, "budget", "the attempt took longer than fallback.budget_ms"},
    Entry{Reason::kProtocolError, "protocol_error", "the peer broke the rules of CLC"},
    Entry{Reason::kPeerClosed, "peer_closed", "peer ended the connection during the handshake"},
    Entry{Reason::kConnectFailed, "connect_failed", "TCP connect() failed"},
    Entry{Reason::kApplicationGone, "application_gone", "application gave up connecting"},
    Entry{Reason::kServerRefused, "server_refused", "server application did not take the connection"},
    Entry{Reason::kLimit, "limit", "a configured limit is reached"},
    Entry{Reason::kLocalPorts, "local_ports", "the quota of local ports for SMC is used up"},
    Entry{Reason::kFabric, "fabric", "the ISM fabric failed"},
    Entry{Reason::kPeerAborted, "peer_aborted", "peer's application reset the connection"},
    Entry{Reason::kApplicationReset, "application_reset", "local application reset the connection"},
    Entry{Reason::kPeerReset, "peer_reset", "the CLC socket's connection ended unexpectedly"},
    Entry{Reason::kBadCursor, "bad_cursor", "peer published impossible cursors"},
    Entry{Reason::kRmbeTakenAgain, "rmbe_taken_again", "the peer gave its RMBE to another connection"},
    Entry{Reason::kCloseTimeout, "close_timeout", "peer did not complete the close; nothing was lost"},
    Entry{Reason::kStopped, "stopped", "the agent stops, or takes no connections for now"},
    Entry{Reason::kLinkDown, "link_down", "the link group lost its link"},
    Entry{Reason::kLlcViolation, "llc_violation", "the peer broke the rules of LLC or CDC"},
    Entry{Reason::kDataLost, "data_lost", "data was lost in a failover: a message of the peer never arrived"},
    Entry{Reason::kNoLeg, "no_leg", "the leg between agent and application could not be connected"},
    Entry{Reason::kPeerClosedEarly, "peer_closed_early", "the application wrote after the peer had closed"},
};

constexpr Reason kFirstOfOurs{0x0a000000};

const Entry* find(Reason reason) {
    const auto* entry =
        std::find_if(kEntries.begin(), kEntries.end(), [&](const Entry& e) { return e.reason == reason; });
    return entry == kEntries.end() ? nullptr : entry;
}

}  // namespace

std::string reason_name(Reason reason) {
    if (const Entry* entry = find(reason)) {
        return entry->name;
    }
    char buffer[12];
    std::snprintf(buffer, sizeof buffer, "0x%08x", static_cast<unsigned>(reason));
    return buffer;
}

std::string_view reason_text(Reason reason) {
    const Entry* entry = find(reason);
    return entry != nullptr ? entry->text : "unknown code of the peer";
}

std::optional<std::string_view> linux_reason_text(Reason reason) {
    const Entry* entry = reason < kFirstOfOurs ? find(reason) : nullptr;
    return entry != nullptr ? std::optional<std::string_view>(entry->text) : std::nullopt;
}

}  // namespace smc
