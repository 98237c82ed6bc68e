// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "os/endpoint.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace smc {

namespace {
constexpr std::array<std::uint8_t, 12> kMappedPrefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
}

bool Endpoint::is_v4() const {
    return std::equal(kMappedPrefix.begin(), kMappedPrefix.end(), ip.begin());
}

std::string Endpoint::ip_text() const {
    char buffer[INET6_ADDRSTRLEN] = {};
    if (is_v4()) {
        ::inet_ntop(AF_INET, ip.data() + 12, buffer, sizeof buffer);
    } else {
        ::inet_ntop(AF_INET6, ip.data(), buffer, sizeof buffer);
    }
    return buffer;
}

std::string Endpoint::text() const {
    const std::string host = is_v4() ? ip_text() : "[" + ip_text() + "]";
    return host + ":" + std::to_string(port);
}

socklen_t Endpoint::to_sockaddr(sockaddr_storage& out, int family) const {
    std::memset(&out, 0, sizeof out);
    if (family == AF_INET) {
        auto& v4 = reinterpret_cast<sockaddr_in&>(out);
        v4.sin_family = AF_INET;
        v4.sin_port = htons(port);
        std::memcpy(&v4.sin_addr, ip.data() + 12, 4);
        return sizeof v4;
    }
    auto& v6 = reinterpret_cast<sockaddr_in6&>(out);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    std::memcpy(&v6.sin6_addr, ip.data(), 16);
    return sizeof v6;
}

Endpoint Endpoint::from_sockaddr(const sockaddr_storage& address) {
    Endpoint e;
    if (address.ss_family == AF_INET) {
        const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
        std::copy(kMappedPrefix.begin(), kMappedPrefix.end(), e.ip.begin());
        std::memcpy(e.ip.data() + 12, &v4.sin_addr, 4);
        e.port = ntohs(v4.sin_port);
    } else if (address.ss_family == AF_INET6) {
        const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
        std::memcpy(e.ip.data(), &v6.sin6_addr, 16);
        e.port = ntohs(v6.sin6_port);
    }
    return e;
}

Endpoint Endpoint::loopback(bool v6, std::uint16_t port) {
    Endpoint e;
    e.port = port;
    if (!v6) {
        std::copy(kMappedPrefix.begin(), kMappedPrefix.end(), e.ip.begin());
        e.ip[12] = 127;
    }
    e.ip[15] = 1;
    return e;
}

std::optional<Endpoint> Endpoint::parse_ip(std::string_view text) {
    const std::string copy(text);
    Endpoint e;
    if (::inet_pton(AF_INET6, copy.c_str(), e.ip.data()) == 1) {
        return e;
    }
    if (::inet_pton(AF_INET, copy.c_str(), e.ip.data() + 12) == 1) {
        std::copy(kMappedPrefix.begin(), kMappedPrefix.end(), e.ip.begin());
        return e;
    }
    return std::nullopt;
}

std::optional<Endpoint> Endpoint::parse(std::string_view text) {
    const auto colon = text.rfind(':');
    if (colon == std::string_view::npos) {
        return std::nullopt;
    }
    std::string_view host = text.substr(0, colon);
    const std::string_view port = text.substr(colon + 1);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
        host = host.substr(1, host.size() - 2);
    }
    auto e = parse_ip(host);
    if (!e) {
        return std::nullopt;
    }
    const auto [end, error] = std::from_chars(port.begin(), port.end(), e->port);
    if (error != std::errc{} || end != port.end()) {
        return std::nullopt;
    }
    return e;
}

Endpoint local_endpoint(int fd) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
    return Endpoint::from_sockaddr(address);
}

}  // namespace smc
