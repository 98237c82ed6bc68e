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

    static Gid random();
    static std::optional<Gid> parse(std::string_view text);
    [[nodiscard]] std::string text() const;  // 8-4-4-4-12
    auto operator<=>(const Gid&) const = default;
};

// Channel ID: names an internal fabric.
enum class Chid : std::uint16_t {};
inline constexpr Chid kChidLoopback{0xffff};
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
    [[nodiscard]] std::string text() const;  // without the padding
    auto operator<=>(const Eid&) const = default;
};

// Names one DMB at its owner. Zero is never used.
enum class DmbToken : std::uint64_t {};
std::string text(DmbToken token);

// Sizes of RMBEs and DMBs travel compressed: 16 KiB << n (RFC 7609 A.2.3, "RMBE Size").
inline constexpr std::uint32_t kSmallestBuffer = 16 * 1024;
constexpr std::uint32_t uncompress_size(std::uint8_t n) {
    return kSmallestBuffer << (n & 15);
}
// Largest n whose buffer is not larger than `bytes`; bytes >= 16 KiB.
constexpr std::uint8_t compress_size(std::uint32_t bytes) {
    std::uint8_t n = 0;
    while (n < 15 && uncompress_size(static_cast<std::uint8_t>(n + 1)) <= bytes) {
        n++;
    }
    return n;
}

// Fills from the kernel's random generator.
void random_bytes(void* to, std::size_t size);

}  // namespace smc
