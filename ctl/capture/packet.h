// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Parses a captured frame down to TCP, UDP, or the InfiniBand packet in a RoCEv1 frame.
#pragma once

#include <string>
#include <variant>

#include "os/endpoint.h"
#include "smc/wire/ids.h"
#include "smc/wire/layout.h"

namespace smc::capture {

using wire::Bytes;

enum class Transport : std::uint8_t { kTcp, kUdp, kRoceV1 };

// TCP header flags.
inline constexpr std::uint8_t kFin = 0x01, kSyn = 0x02, kRst = 0x04, kAck = 0x10;

struct Packet {
    Transport transport = Transport::kTcp;
    Endpoint from, to;       // RoCEv1: GIDs, no ports
    Bytes payload;           // as far as it was captured; points into the frame
    std::size_t length = 0;  // bytes of payload on the wire; more than payload.size() when the snap length cut it

    // TCP
    std::uint32_t sequence = 0, acknowledgment = 0;
    std::uint8_t flags = 0;
    Bytes options;
    bool options_cut = false;  // by the snap length: then there is no payload
};

// The GID of one end of a RoCE packet, in the one notation in which GIDs are compared.
inline RoceGid gid_of(const Endpoint& end) {
    return RoceGid{end.ip}.normalised();
}

// Why a frame is not looked at.
enum class Skipped : std::uint8_t {
    kNotIp,     // ARP and others
    kFragment,  // of an IP packet
    kTunnel,    // IP in IP, GRE, VXLAN, GENEVE
    kOther,     // another protocol, or UDP that is not RoCE
    kBroken,    // or cut too short
};
using Parsed = std::variant<Packet, Skipped>;

// `link_type` is a DLT_ value: Ethernet (VLAN tags too), Linux cooked 1 and 2, raw IP, and loopback are known.
Parsed parse_packet(int link_type, Bytes frame);
bool is_known_link_type(int link_type);
std::string link_type_text(int link_type);

}  // namespace smc::capture
