// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// From a captured frame to TCP or UDP. Whatever is not one of these, or is broken, is no packet.
#pragma once

#include <optional>

#include "os/endpoint.h"
#include "smc/wire/layout.h"

namespace smc::capture {

using wire::Bytes;

enum class Transport : std::uint8_t { kTcp, kUdp };

// TCP header flags.
inline constexpr std::uint8_t kFin = 0x01, kSyn = 0x02, kRst = 0x04, kAck = 0x10;

struct Packet {
    Transport transport = Transport::kTcp;
    Endpoint from, to;
    Bytes payload;           // of the captured bytes; points into the frame
    std::size_t length = 0;  // bytes of payload on the wire; more than payload.size() when the snap length cut it

    // TCP
    std::uint32_t sequence = 0;
    std::uint8_t flags = 0;
    Bytes options;
    bool options_cut = false;  // by the snap length: then there is no payload
};

// `link_type` is a DLT_ value: Ethernet (VLAN tags too), Linux cooked 1 and 2, raw IP, and loopback are known. IP
// fragments are no packets.
std::optional<Packet> parse_packet(int link_type, Bytes frame);
bool is_known_link_type(int link_type);

}  // namespace smc::capture
