// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ctl/capture/packet.h"

#include <netinet/in.h>
#include <pcap/pcap.h>

#include <algorithm>

namespace smc::capture {

namespace {

constexpr std::uint16_t kEtherIpv4 = 0x0800, kEtherIpv6 = 0x86dd, kEtherVlan = 0x8100, kEtherQinQ = 0x88a8,
                        kEtherRoceV1 = 0x8915;
constexpr int kMaxTags = 2;
constexpr int kMaxExtensionHeaders = 8;

std::uint64_t number(Bytes from, std::size_t offset, std::size_t bytes) {
    return wire::load_be(&from[offset], bytes);
}

bool is_tunnel(std::uint8_t protocol) {
    return protocol == IPPROTO_IPIP || protocol == IPPROTO_IPV6 || protocol == IPPROTO_GRE;
}

// Parses the payload of an IP packet. `rest` begins after the IP headers; `length` is the length that they announce.
Parsed parse_transport(Packet packet, std::uint8_t protocol, Bytes rest, std::size_t length) {
    std::size_t header = 8;
    if (protocol == IPPROTO_TCP) {
        if (rest.size() < 20) {
            return Skipped::kBroken;
        }
        header = std::size_t{rest[12]} >> 4 << 2;
        if (header < 20) {
            return Skipped::kBroken;
        }
    } else if (protocol != IPPROTO_UDP) {
        return is_tunnel(protocol)            ? Skipped::kTunnel
               : protocol == IPPROTO_FRAGMENT ? Skipped::kFragment
                                              : Skipped::kOther;
    }
    if (length < header || (rest.size() < header && protocol == IPPROTO_UDP)) {
        return Skipped::kBroken;
    }
    packet.options_cut = rest.size() < header;
    const std::size_t captured = std::min(rest.size(), header);
    packet.from.port = static_cast<std::uint16_t>(number(rest, 0, 2));
    packet.to.port = static_cast<std::uint16_t>(number(rest, 2, 2));
    packet.payload = rest.subspan(captured);
    packet.length = length - header;
    if (protocol == IPPROTO_UDP) {
        packet.transport = Transport::kUdp;
        // The UDP header has a length of its own, which is 0 in large datagrams from segmentation offload.
        const std::size_t said = number(rest, 4, 2);
        if (said >= 8) {
            packet.length = std::min(packet.length, said - 8);
        }
    } else {
        packet.sequence = static_cast<std::uint32_t>(number(rest, 4, 4));
        packet.acknowledgment = static_cast<std::uint32_t>(number(rest, 8, 4));
        packet.flags = rest[13];
        packet.options = rest.subspan(20, captured - 20);
    }
    packet.payload = packet.payload.first(std::min(packet.payload.size(), packet.length));
    return packet;
}

Parsed parse_ipv4(Bytes ip) {
    if (ip.size() < 20 || ip[0] >> 4 != 4) {
        return Skipped::kBroken;
    }
    const std::size_t header = std::size_t{ip[0] & 15U} * 4;
    std::size_t total = number(ip, 2, 2);
    if (total == 0) {
        total = ip.size();  // segmentation offload, captured before the length was known
    }
    if (header < 20 || ip.size() < header || total < header) {
        return Skipped::kBroken;
    }
    if ((number(ip, 6, 2) & 0x3fff) != 0) {
        return Skipped::kFragment;
    }
    Packet packet;
    const auto mapped = [&](std::size_t offset, Endpoint& endpoint) {
        endpoint.ip[10] = endpoint.ip[11] = 0xff;
        std::copy_n(ip.begin() + static_cast<std::ptrdiff_t>(offset), 4, endpoint.ip.begin() + 12);
    };
    mapped(12, packet.from);
    mapped(16, packet.to);
    ip = ip.first(std::min(ip.size(), total));
    return parse_transport(packet, ip[9], ip.subspan(header), total - header);
}

Parsed parse_ipv6(Bytes ip) {
    if (ip.size() < 40 || ip[0] >> 4 != 6) {
        return Skipped::kBroken;
    }
    Packet packet;
    std::copy_n(ip.begin() + 8, 16, packet.from.ip.begin());
    std::copy_n(ip.begin() + 24, 16, packet.to.ip.begin());
    std::uint8_t next = ip[6];
    std::size_t length = number(ip, 4, 2);
    Bytes rest = ip.subspan(40);
    if (length == 0) {
        length = rest.size();
    }
    rest = rest.first(std::min(rest.size(), length));
    for (int i = 0; i < kMaxExtensionHeaders; i++) {
        if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING && next != IPPROTO_DSTOPTS) {
            return parse_transport(packet, next, rest, length);  // for a fragment, too, which it refuses
        }
        if (rest.size() < 8) {
            return Skipped::kBroken;
        }
        const std::size_t header = (std::size_t{rest[1]} + 1) * 8;
        if (rest.size() < header) {
            return Skipped::kBroken;
        }
        next = rest[0];
        rest = rest.subspan(header);
        length -= header;
    }
    return Skipped::kBroken;
}

// The Global Route Header of InfiniBand has the layout of an IPv6 header, and GIDs for addresses.
Parsed parse_roce_v1(Bytes grh) {
    constexpr std::size_t kGrhBytes = 40;
    constexpr std::uint8_t kTransportHeader = 0x1b;
    if (grh.size() < kGrhBytes || grh[0] >> 4 != 6 || grh[6] != kTransportHeader) {
        return Skipped::kBroken;
    }
    Packet packet;
    packet.transport = Transport::kRoceV1;
    std::copy_n(grh.begin() + 8, 16, packet.from.ip.begin());
    std::copy_n(grh.begin() + 24, 16, packet.to.ip.begin());
    packet.length = number(grh, 4, 2);
    packet.payload = grh.subspan(kGrhBytes);
    packet.payload = packet.payload.first(std::min(packet.payload.size(), packet.length));
    return packet;
}

Parsed parse_ether_type(std::uint64_t type, Bytes rest) {
    for (int tags = 0; (type == kEtherVlan || type == kEtherQinQ) && tags < kMaxTags && rest.size() >= 4; tags++) {
        type = number(rest, 2, 2);
        rest = rest.subspan(4);
    }
    switch (type) {
        case kEtherIpv4:
            return parse_ipv4(rest);
        case kEtherIpv6:
            return parse_ipv6(rest);
        case kEtherRoceV1:
            return parse_roce_v1(rest);
        default:
            return Skipped::kNotIp;
    }
}

Parsed parse_raw(Bytes frame) {
    if (frame.empty()) {
        return Skipped::kBroken;
    }
    return frame[0] >> 4 == 4 ? parse_ipv4(frame) : parse_ipv6(frame);
}

}  // namespace

bool is_known_link_type(int link_type) {
    switch (link_type) {
        case DLT_EN10MB:
        case DLT_LINUX_SLL:
        case DLT_LINUX_SLL2:
        case DLT_RAW:
        case DLT_IPV4:
        case DLT_IPV6:
        case DLT_NULL:
        case DLT_LOOP:
            return true;
        default:
            return false;
    }
}

std::string link_type_text(int link_type) {
    const char* name = ::pcap_datalink_val_to_name(link_type);
    return name != nullptr ? name : std::to_string(link_type);
}

Parsed parse_packet(int link_type, Bytes frame) {
    const auto behind = [&](std::size_t header) { return frame.subspan(std::min(frame.size(), header)); };
    switch (link_type) {
        case DLT_EN10MB:
            return frame.size() < 14 ? Skipped::kBroken : parse_ether_type(number(frame, 12, 2), behind(14));
        case DLT_LINUX_SLL:
            return frame.size() < 16 ? Skipped::kBroken : parse_ether_type(number(frame, 14, 2), behind(16));
        case DLT_LINUX_SLL2:
            return frame.size() < 20 ? Skipped::kBroken : parse_ether_type(number(frame, 0, 2), behind(20));
        case DLT_NULL:
        case DLT_LOOP:
            return parse_raw(behind(4));
        default:
            return parse_raw(frame);
    }
}

}  // namespace smc::capture
