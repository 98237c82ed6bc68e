// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// EBCDIC (IBM-1047) for what SMC writes in it: eye catchers, and host names that z/OS did not translate. Letters,
// digits, dot, hyphen and blank; everything else is no character of a name.
#pragma once

#include <cstdint>
#include <string_view>

namespace smc {

// 0 for characters that names do not have.
constexpr std::uint8_t ebcdic_of(char c) {
    const auto in = [&](char first, char last) { return c >= first && c <= last; };
    const auto from = [&](char first, int code) { return static_cast<std::uint8_t>(code + (c - first)); };
    return in('a', 'i')   ? from('a', 0x81)
           : in('j', 'r') ? from('j', 0x91)
           : in('s', 'z') ? from('s', 0xa2)
           : in('A', 'I') ? from('A', 0xc1)
           : in('J', 'R') ? from('J', 0xd1)
           : in('S', 'Z') ? from('S', 0xe2)
           : in('0', '9') ? from('0', 0xf0)
           : c == '.'     ? 0x4b
           : c == '-'     ? 0x60
           : c == ' '     ? 0x40
                          : 0;
}

// NUL for what is none of those characters.
constexpr char ascii_of(std::uint8_t code) {
    constexpr std::string_view kCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.- ";
    for (const char c : kCharacters) {
        if (ebcdic_of(c) == code) {
            return c;
        }
    }
    return '\0';
}

// Four characters as the number that they are on the wire.
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
