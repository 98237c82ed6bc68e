// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/gateway/held_syn.h"

#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "smc/wire/layout.h"

namespace smc {

namespace {

using wire::load_be;
using wire::store_be;

constexpr std::size_t kIp6Header = 40;
constexpr std::size_t kTcpHeader = 20;
constexpr std::uint8_t kRstAck = 0x14;

// RFC 1071, without the final complement.
std::uint32_t sum16(const std::uint8_t* data, std::size_t bytes, std::uint32_t sum = 0) {
    for (std::size_t i = 0; i + 1 < bytes; i += 2) {
        sum += static_cast<std::uint32_t>(data[i] << 8 | data[i + 1]);
    }
    if (bytes % 2 != 0) {
        sum += static_cast<std::uint32_t>(data[bytes - 1] << 8);
    }
    return sum;
}

std::uint16_t fold(std::uint32_t sum) {
    while (sum >> 16 != 0) {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return static_cast<std::uint16_t>(~sum);
}

Endpoint endpoint_at(const std::uint8_t* ip, bool v6, std::uint16_t port) {
    sockaddr_storage address{};
    if (v6) {
        auto& a = reinterpret_cast<sockaddr_in6&>(address);
        a.sin6_family = AF_INET6;
        std::memcpy(&a.sin6_addr, ip, 16);
    } else {
        auto& a = reinterpret_cast<sockaddr_in&>(address);
        a.sin_family = AF_INET;
        std::memcpy(&a.sin_addr, ip, 4);
    }
    Endpoint e = Endpoint::from_sockaddr(address);
    e.port = port;
    return e;
}

Result<void> send_raw(int fd, const std::vector<std::uint8_t>& packet, const Endpoint& to, int family) {
    sockaddr_storage address{};
    Endpoint without_port = to;
    without_port.port = 0;
    const socklen_t length = without_port.to_sockaddr(address, family);
    if (::sendto(fd, packet.data(), packet.size(), 0, reinterpret_cast<sockaddr*>(&address), length) < 0) {
        return last_error("injecting a packet");
    }
    return {};
}

std::uint8_t icmp_code(int error) {
    return error == ENETUNREACH ? ICMP_NET_UNREACH : ICMP_HOST_UNREACH;
}

std::uint8_t icmp6_code(int error) {
    return error == ENETUNREACH                ? ICMP6_DST_UNREACH_NOROUTE
           : error == EACCES || error == EPERM ? ICMP6_DST_UNREACH_ADMIN
                                               : ICMP6_DST_UNREACH_ADDR;
}

}  // namespace

HeldSyn::HeldSyn(const smc_event& event) : packet_(event.syn, event.syn + event.syn_len) {
    if (packet_.size() < 20 + kTcpHeader) {
        return;
    }
    const bool six = packet_[0] >> 4 == 6;
    const std::size_t at = six ? kIp6Header : static_cast<std::size_t>(packet_[0] & 15) * 4;
    if (at + kTcpHeader > packet_.size()) {
        return;
    }
    const std::size_t header = static_cast<std::size_t>(packet_[at + 12] >> 4) * 4;
    if (header < kTcpHeader || at + header > packet_.size()) {
        return;
    }
    packet_.resize(at + header);  // data of a Fast Open SYN comes again after the handshake
    tcp_at_ = at;
    const std::uint8_t* ip = packet_.data();
    source_ = endpoint_at(ip + (six ? 8 : 12), six, static_cast<std::uint16_t>(load_be(ip + at, 2)));
}

std::uint16_t HeldSyn::tcp_checksum(const std::vector<std::uint8_t>& packet) const {
    const std::size_t bytes = packet.size() - tcp_at_;
    const std::size_t addresses = v6() ? 32 : 8;
    std::uint32_t sum = sum16(&packet[v6() ? 8 : 12], addresses);
    sum += IPPROTO_TCP + static_cast<std::uint32_t>(bytes);
    return fold(sum16(&packet[tcp_at_], bytes, sum));
}

Result<void> HeldSyn::inject(Namespace& space, std::vector<std::uint8_t> packet) const {
    if (v6()) {
        store_be(&packet[4], 2, packet.size() - kIp6Header);
    } else {
        store_be(&packet[2], 2, packet.size());
    }
    // The captured header holds only a partial sum (offloaded to a device it never reached).
    store_be(&packet[tcp_at_ + 16], 2, 0);
    store_be(&packet[tcp_at_ + 16], 2, tcp_checksum(packet));
    const int family = v6() ? AF_INET6 : AF_INET;
    const auto raw = space.raw_socket(family, IPPROTO_RAW);
    if (!raw) {
        return raw.error();
    }
    const Endpoint to = v6() ? endpoint_at(&packet[24], true, 0) : endpoint_at(&packet[16], false, 0);
    return send_raw(*raw, packet, to, family);
}

Result<void> HeldSyn::release(Namespace& space) const {
    return inject(space, packet_);
}

Result<void> HeldSyn::refuse(Namespace& space) const {
    std::vector<std::uint8_t> packet(packet_.begin(),
                                     packet_.begin() + static_cast<std::ptrdiff_t>(tcp_at_ + kTcpHeader));
    const std::size_t address = v6() ? 16 : 4;
    const std::size_t source = v6() ? 8 : 12;
    std::uint8_t* ip = packet.data();
    std::uint8_t* tcp = ip + tcp_at_;
    std::swap_ranges(ip + source, ip + source + address, ip + source + address);
    std::swap_ranges(tcp, tcp + 2, tcp + 2);
    const std::uint64_t sequence = load_be(tcp + 4, 4);
    store_be(tcp + 4, 4, 0);
    store_be(tcp + 8, 4, sequence + 1);
    tcp[12] = kTcpHeader / 4 << 4;
    tcp[13] = kRstAck;
    return inject(space, std::move(packet));
}

Result<void> HeldSyn::unreachable(Namespace& space, int error) const {
    std::vector<std::uint8_t> message(8);
    message[0] = v6() ? std::uint8_t{ICMP6_DST_UNREACH} : std::uint8_t{ICMP_DEST_UNREACH};
    message[1] = v6() ? icmp6_code(error) : icmp_code(error);
    message.insert(message.end(), packet_.begin(), packet_.end());
    if (!v6()) {
        store_be(&message[8 + 2], 2, packet_.size());
        store_be(&message[2], 2, fold(sum16(message.data(), message.size())));
    }
    const int family = v6() ? AF_INET6 : AF_INET;
    const auto raw = space.raw_socket(family, v6() ? static_cast<int>(IPPROTO_ICMPV6) : static_cast<int>(IPPROTO_ICMP));
    return raw ? send_raw(*raw, message, source_, family) : Result<void>(raw.error());
}

}  // namespace smc
