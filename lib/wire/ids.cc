// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/wire/ids.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdio>

#include "smc/wire/ebcdic.h"

namespace smc {

namespace {

std::string hex(std::uint64_t value, int digits) {
    char buffer[24];
    std::snprintf(buffer, sizeof buffer, "0x%0*llx", digits, static_cast<unsigned long long>(value));
    return buffer;
}

// Text from a peer, made safe for a terminal.
std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
        const bool printable = c > ' ' && c < 0x7f && c != '\\';
        char byte[5];
        std::snprintf(byte, sizeof byte, "\\x%02x", static_cast<std::uint8_t>(c));
        out += printable ? std::string(1, c) : byte;
    }
    return out;
}

constexpr bool is_host_name_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-';
}

}  // namespace

std::string Gid::text() const {
    std::string out;
    char hex[3];
    for (std::size_t i = 0; i < bytes.size(); i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) {
            out += '-';
        }
        std::snprintf(hex, sizeof hex, "%02x", bytes[i]);
        out += hex;
    }
    return out;
}

RoceGid RoceGid::from_ipv4(const std::array<std::uint8_t, 4>& address) {
    RoceGid gid = from_ipv4_right_aligned(address);
    gid.bytes[10] = gid.bytes[11] = 0xff;
    return gid;
}

RoceGid RoceGid::from_ipv4_right_aligned(const std::array<std::uint8_t, 4>& address) {
    RoceGid gid;
    std::copy(address.begin(), address.end(), gid.bytes.begin() + 12);
    return gid;
}

std::optional<RoceGid> RoceGid::parse(std::string_view text) {
    const std::string terminated(text);
    RoceGid gid;
    std::array<std::uint8_t, 4> v4{};
    if (::inet_pton(AF_INET, terminated.c_str(), v4.data()) == 1) {
        return from_ipv4(v4);
    }
    if (::inet_pton(AF_INET6, terminated.c_str(), gid.bytes.data()) == 1) {
        return gid;
    }
    return std::nullopt;
}

bool RoceGid::is_v4() const {
    const auto zeros = [&](std::size_t n) {
        return std::all_of(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n),
                           [](std::uint8_t b) { return b == 0; });
    };
    const bool mapped = zeros(10) && bytes[10] == 0xff && bytes[11] == 0xff;
    return mapped || (zeros(12) && bytes[12] != 0);  // ::1 is IPv6
}

RoceGid RoceGid::normalised() const {
    return is_v4() ? from_ipv4({bytes[12], bytes[13], bytes[14], bytes[15]}) : *this;
}

std::string RoceGid::text() const {
    char buffer[INET6_ADDRSTRLEN];
    return ::inet_ntop(AF_INET6, bytes.data(), buffer, sizeof buffer);
}

bool same_subnet(const RoceGid& a, const RoceGid& b, unsigned prefix_bits) {
    const RoceGid x = a.normalised(), y = b.normalised();
    const unsigned bits = prefix_bits + (x.is_v4() ? 96 : 0);
    if (x.is_v4() != y.is_v4() || bits > 128) {
        return false;
    }
    for (unsigned i = 0; i < bits; i++) {
        if (((x.bytes[i / 8] ^ y.bytes[i / 8]) & (0x80 >> i % 8)) != 0) {
            return false;
        }
    }
    return true;
}

std::string Mac::text() const {
    char buffer[18];
    std::snprintf(buffer, sizeof buffer, "%02x:%02x:%02x:%02x:%02x:%02x", bytes[0], bytes[1], bytes[2], bytes[3],
                  bytes[4], bytes[5]);
    return buffer;
}

std::string text(Qpn qpn) {
    return hex(static_cast<std::uint64_t>(qpn), 6);
}

std::string text(Psn psn) {
    return hex(static_cast<std::uint64_t>(psn), 6);
}

std::string text(RKey rkey) {
    return hex(static_cast<std::uint64_t>(rkey), 8);
}

std::string text(VirtualAddress address) {
    return hex(static_cast<std::uint64_t>(address), 16);
}

std::string text(AlertToken token) {
    return hex(static_cast<std::uint64_t>(token), 8);
}

std::string text(LinkId id) {
    return hex(static_cast<std::uint64_t>(id), 8);
}

std::string text(const PeerId& id) {
    std::uint64_t value = 0;
    for (const std::uint8_t byte : id) {
        value = value << 8 | byte;
    }
    return hex(value, 16);
}

std::string text(Chid chid) {
    return hex(static_cast<std::uint64_t>(chid), 4);
}

std::string text(DmbToken token) {
    return hex(static_cast<std::uint64_t>(token), 16);
}

std::string text(BufferSize size) {
    const std::uint32_t kib = bytes_of(size) / 1024;
    return std::to_string(static_cast<unsigned>(size)) +
           (kib < 1024 ? " (" + std::to_string(kib) + " KiB)" : " (" + std::to_string(kib / 1024) + " MiB)");
}

HostName HostName::padded(std::string_view name) {
    HostName host;
    host.chars.fill(' ');
    std::copy_n(name.begin(), std::min(name.size(), host.chars.size()), host.chars.begin());
    return host;
}

std::string HostName::text() const {
    const std::string_view all(chars.data(), chars.size());
    const auto upto = [&](std::string_view ends) { return std::string(all.substr(0, all.find_first_of(ends))); };
    std::string name = upto(std::string_view(" \0", 2));
    if (std::all_of(name.begin(), name.end(), is_host_name_character)) {
        return name;
    }
    std::string translated = upto(std::string_view("\x40\0", 2));  // x'40' is the blank
    std::transform(translated.begin(), translated.end(), translated.begin(),
                   [](char c) { return ascii_of(static_cast<std::uint8_t>(c)); });
    if (!translated.empty() && std::all_of(translated.begin(), translated.end(), is_host_name_character)) {
        return translated;
    }
    return escaped(name);
}

std::optional<Eid> Eid::parse(std::string_view text) {
    const auto alphanumeric = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); };
    if (text.empty() || text.size() > 32 || !alphanumeric(text.front()) || text.find("..") != std::string_view::npos) {
        return std::nullopt;
    }
    Eid eid;
    eid.chars.fill(' ');
    for (std::size_t i = 0; i < text.size(); i++) {
        if (!alphanumeric(text[i]) && text[i] != '-' && text[i] != '.') {
            return std::nullopt;
        }
        eid.chars[i] = text[i];
    }
    return eid;
}

std::string Eid::text() const {
    std::string out(chars.data(), chars.size());
    out.erase(std::find_if(out.begin(), out.end(), [](char c) { return c == ' ' || c == '\0'; }), out.end());
    return escaped(out);
}

}  // namespace smc
