// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A transport address. An IPv4 address has its IPv4-mapped form, as in the BPF maps (bpf/abi.h), so that one type and
// one comparison serve both families.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace smc {

struct Endpoint {
    std::array<std::uint8_t, 16> ip{};
    std::uint16_t port = 0;

    [[nodiscard]] bool is_v4() const;
    // "10.0.0.1:80", "[fd00::1]:80"
    [[nodiscard]] std::string text() const;
    [[nodiscard]] std::string ip_text() const;

    // A sockaddr of `family` (AF_INET or AF_INET6; IPv4 becomes mapped in the latter) and its length.
    [[nodiscard]] socklen_t to_sockaddr(sockaddr_storage& out, int family) const;
    [[nodiscard]] int family() const { return is_v4() ? AF_INET : AF_INET6; }

    static Endpoint from_sockaddr(const sockaddr_storage& address);
    static Endpoint loopback(bool v6, std::uint16_t port);
    // "ADDR" without a port; nullopt if it is not an address.
    static std::optional<Endpoint> parse_ip(std::string_view text);
    // "ADDR:PORT" or "[ADDR]:PORT".
    static std::optional<Endpoint> parse(std::string_view text);

    auto operator<=>(const Endpoint&) const = default;
};

// getsockname(); all zero if the socket has no address any more.
Endpoint local_endpoint(int fd);

}  // namespace smc
