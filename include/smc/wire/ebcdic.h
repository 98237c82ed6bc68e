// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// EBCDIC (IBM-1047) for what SMC writes in it: eye catchers, and host names that z/OS did not translate. Letters,
// digits, dot, hyphen and blank; everything else is no character of a name.
#pragma once

#include <cstdint>
#include <string_view>

namespace smc {

namespace detail {
struct EbcdicRange {
    char first, last;
    std::uint8_t code;  // of the first
};
inline constexpr EbcdicRange kEbcdic[] = {{'a', 'i', 0x81}, {'j', 'r', 0x91}, {'s', 'z', 0xa2}, {'A', 'I', 0xc1},
                                          {'J', 'R', 0xd1}, {'S', 'Z', 0xe2}, {'0', '9', 0xf0}, {'.', '.', 0x4b},
                                          {'-', '-', 0x60}, {' ', ' ', 0x40}};
}  // namespace detail

// 0 for characters that names do not have.
constexpr std::uint8_t ebcdic_of(char c) {
    for (const auto& range : detail::kEbcdic) {
        if (c >= range.first && c <= range.last) {
            return static_cast<std::uint8_t>(range.code + (c - range.first));
        }
    }
    return 0;
}

// NUL for codes of other characters.
constexpr char ascii_of(std::uint8_t code) {
    for (const auto& range : detail::kEbcdic) {
        if (code >= range.code && code <= range.code + (range.last - range.first)) {
            return static_cast<char>(range.first + (code - range.code));
        }
    }
    return '\0';
}

// Four characters as the 32-bit number that they are on the wire.
constexpr std::uint32_t eye_catcher(std::string_view name) {
    std::uint32_t value = 0;
    for (const char c : name) {
        value = value << 8 | ebcdic_of(c);
    }
    return value;
}

inline constexpr std::uint32_t kEyeCatcherR = eye_catcher("SMCR");
inline constexpr std::uint32_t kEyeCatcherD = eye_catcher("SMCD");
// RFC 7609 A.1 gives the bytes.
static_assert(kEyeCatcherR == 0xe2d4c3d9 && kEyeCatcherD == 0xe2d4c3c4);

}  // namespace smc
