// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/gateway/saved_packet.h"

#include <netinet/in.h>

#include "smc/wire/layout.h"

namespace smc {

namespace {

constexpr std::size_t kIp6Header = 40;
constexpr std::size_t kTcpHeader = 20;
constexpr std::size_t kChecksum = 16;  // offset in the TCP header

// RFC 1071, without the final complement.
std::uint32_t sum16(const std::uint8_t* data, std::size_t bytes, std::uint32_t sum) {
    for (std::size_t i = 0; i + 1 < bytes; i += 2) {
        sum += static_cast<std::uint32_t>(data[i] << 8 | data[i + 1]);
    }
    return sum;
}

std::uint16_t fold(std::uint32_t sum) {
    while (sum >> 16 != 0) {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return static_cast<std::uint16_t>(~sum);
}

}  // namespace

std::vector<std::uint8_t> saved_packet(const smc_request& request) {
    const std::size_t ip = request.mac_len;
    if (request.packet_len > SMC_PACKET_BYTES || request.packet_len < ip + 20 + kTcpHeader) {
        return {};
    }
    std::vector<std::uint8_t> packet(request.packet, request.packet + request.packet_len);
    const bool v6 = packet[ip] >> 4 == 6;
    const std::size_t tcp = ip + (v6 ? kIp6Header : static_cast<std::size_t>(packet[ip] & 15) * 4);
    // The checksum below sums whole words, so the length after the link-layer header must be even.
    if (tcp + kTcpHeader > packet.size() || packet.size() % 2 != ip % 2) {
        return {};
    }
    const std::size_t bytes = packet.size() - tcp;
    std::uint32_t sum =
        sum16(&packet[ip + (v6 ? 8 : 12)], v6 ? 32 : 8, IPPROTO_TCP + static_cast<std::uint32_t>(bytes));
    wire::store_be(&packet[tcp + kChecksum], 2, 0);
    wire::store_be(&packet[tcp + kChecksum], 2, fold(sum16(&packet[tcp], bytes, sum)));
    return packet;
}

}  // namespace smc
