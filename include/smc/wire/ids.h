// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Identifiers of the SMC architecture as types of their own.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace smc {

// RFC 7609 A.2.1: instance ID and MAC; unique per agent instance.
using PeerId = std::array<std::uint8_t, 8>;

// Extended GID of an Emulated-ISM device: a version 4 UUID (SMC v2.1, "Extended GIDs").
struct Gid {
    std::array<std::uint8_t, 16> bytes{};

    [[nodiscard]] std::string text() const;  // 8-4-4-4-12
    auto operator<=>(const Gid&) const = default;
};

// RoCEv2 GID: an IP address in 16 bytes (SMC v2.1, Proposal V2 extension, note 4). An IPv4 address has two
// notations, and both mean the same: right aligned after zeros, or IPv4-mapped (::ffff:a.b.c.d).
struct RoceGid {
    std::array<std::uint8_t, 16> bytes{};

    // IPv4-mapped, as Linux has it on the wire.
    static RoceGid from_ipv4(const std::array<std::uint8_t, 4>& address);
    static RoceGid from_ipv4_right_aligned(const std::array<std::uint8_t, 4>& address);
    static std::optional<RoceGid> parse(std::string_view text);  // an IPv4 or IPv6 address

    [[nodiscard]] bool is_v4() const;
    [[nodiscard]] bool is_zero() const { return *this == RoceGid{}; }
    // The one notation in which addresses can be compared: IPv4-mapped, or IPv6.
    [[nodiscard]] RoceGid normalised() const;
    [[nodiscard]] std::string text() const;  // as IPv6; "::ffff:10.0.0.1" and "::10.0.0.1" tell the notation
    auto operator<=>(const RoceGid&) const = default;
};

// True if both are addresses of one family whose first `prefix_bits` bits agree.
bool same_subnet(const RoceGid& a, const RoceGid& b, unsigned prefix_bits);

struct Mac {
    std::array<std::uint8_t, 6> bytes{};

    [[nodiscard]] std::string text() const;  // 52:54:00:00:00:01
    auto operator<=>(const Mac&) const = default;
};

// Descriptions of queue pairs and memory that peers exchange. The first two are sent as 24 bits.
enum class Qpn : std::uint32_t {};             // queue pair number
enum class Psn : std::uint32_t {};             // packet sequence number
enum class RKey : std::uint32_t {};            // key of an RMB on one link
enum class VirtualAddress : std::uint64_t {};  // address of an RMB on one link
enum class AlertToken : std::uint32_t {};      // names one connection at the owner of the RMBE
enum class LinkId : std::uint32_t {};          // "link user ID": for display only
std::string text(Qpn qpn);                     // "0x000011"
std::string text(Psn psn);
std::string text(RKey rkey);
std::string text(VirtualAddress address);
std::string text(AlertToken token);
std::string text(LinkId id);
std::string text(const PeerId& id);

// Channel ID: names an internal fabric.
enum class Chid : std::uint16_t {};
inline constexpr Chid kChidEmulatedFirst{0xff00};
constexpr bool is_emulated(Chid chid) {
    return chid >= kChidEmulatedFirst;
}
std::string text(Chid chid);  // "0xff00"

// Enterprise ID, 32 ASCII characters padded with blanks (SMC v2.1, Proposal V2 extension, note 7).
struct Eid {
    std::array<char, 32> chars{};

    // Rules for UEIDs: A-Z 0-9 - . only, first character alphanumeric, no two dots in a row.
    static std::optional<Eid> parse(std::string_view text);
    [[nodiscard]] std::string text() const;  // without the padding; what is not printable is escaped
    auto operator<=>(const Eid&) const = default;
};

// A peer's host name in a First Contact Extension: 32 characters, ASCII, padded with blanks; a blank inside ends it.
struct HostName {
    std::array<char, 32> chars{};

    // Padded, or cut at 32.
    static HostName padded(std::string_view name);
    // Up to the first blank or NUL. A name in EBCDIC is translated; one with characters that host names do not have is
    // escaped: it is for display, never an error (SMC v2.1, FCE, items 4 to 6).
    [[nodiscard]] std::string text() const;
    auto operator<=>(const HostName&) const = default;
};

// Names one DMB at its owner. Zero is never used.
enum class DmbToken : std::uint64_t {};
std::string text(DmbToken token);

// Sizes of RMBEs and DMBs travel compressed in 4 bits: 16 KiB << n (RFC 7609 A.2.3, "Bsize"). The RFC ends at 512 KiB,
// n = 5; Linux goes on.
enum class BufferSize : std::uint8_t {};
inline constexpr std::uint32_t kSmallestBuffer = 16 * 1024;
constexpr std::uint32_t bytes_of(BufferSize size) {
    return kSmallestBuffer << (static_cast<unsigned>(size) & 15);
}
std::string text(BufferSize size);  // "2 (64 KiB)"
// Largest n whose buffer is not larger than `bytes`; bytes >= 16 KiB.
constexpr BufferSize compress_size(std::uint32_t bytes) {
    std::uint8_t n = 0;
    while (n < 15 && kSmallestBuffer << (n + 1) <= bytes) {
        n++;
    }
    return BufferSize{n};
}

}  // namespace smc
