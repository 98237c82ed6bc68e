// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/steer/probe_packet.h"

#include <arpa/inet.h>
#include <net/ethernet.h>
#include <netinet/in.h>

#include "bpf/abi.h"
#include "smc/wire/layout.h"

namespace smc::bpf {

using wire::store_be;

// The addresses are reserved for documentation, so no host has them.
std::vector<std::uint8_t> probe_packet(std::uint32_t mac_len, bool v6, std::uint32_t mark) {
    const std::size_t ip = mac_len, tcp = ip + (v6 ? 40 : 20);
    std::vector<std::uint8_t> packet(tcp + 20);
    if (mac_len != 0) {
        store_be(&packet[12], 2, v6 ? ETHERTYPE_IPV6 : ETHERTYPE_IP);
    }
    if (v6) {
        packet[ip] = 0x60;
        packet[ip + 5] = 20;
        packet[ip + 6] = IPPROTO_TCP;
        packet[ip + 7] = 1;
        ::inet_pton(AF_INET6, "2001:db8::1", &packet[ip + 8]);
        ::inet_pton(AF_INET6, "2001:db8::2", &packet[ip + 24]);
    } else {
        packet[ip] = 0x45;
        packet[ip + 3] = 40;
        packet[ip + 8] = 1;
        packet[ip + 9] = IPPROTO_TCP;
        ::inet_pton(AF_INET, "192.0.2.1", &packet[ip + 12]);
        ::inet_pton(AF_INET, "192.0.2.2", &packet[ip + 16]);
    }
    store_be(&packet[tcp], 2, SMC_PROBE_PORT);
    store_be(&packet[tcp + 2], 2, SMC_PROBE_PORT);
    store_be(&packet[tcp + 4], 4, mark);
    packet[tcp + 12] = 5 << 4;
    return packet;
}

}  // namespace smc::bpf
