// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/ids.h"

#include <sys/random.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace smc {

void random_bytes(void* to, std::size_t size) {
    // At most 256 bytes: never short, never interrupted once the generator is seeded.
    if (::getrandom(to, size, 0) != static_cast<ssize_t>(size)) {
        std::abort();
    }
}

Gid Gid::random() {
    Gid gid;
    random_bytes(gid.bytes.data(), gid.bytes.size());
    gid.bytes[6] = (gid.bytes[6] & 0x0f) | 0x40;  // RFC 4122: version 4
    gid.bytes[8] = (gid.bytes[8] & 0x3f) | 0x80;  // and variant 1
    return gid;
}

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

std::optional<Gid> Gid::parse(std::string_view text) {
    std::string digits;
    std::copy_if(text.begin(), text.end(), std::back_inserter(digits), [](char c) { return c != '-'; });
    if (text.size() != 36 || digits.size() != 32 ||
        digits.find_first_not_of("0123456789abcdef") != std::string::npos) {
        return std::nullopt;
    }
    Gid gid;
    for (std::size_t i = 0; i < gid.bytes.size(); i++) {
        gid.bytes[i] =
            static_cast<std::uint8_t>(std::stoul(digits.substr(i * 2, 2), nullptr, 16));
    }
    return gid;
}

std::string text(Chid chid) {
    char buffer[8];
    std::snprintf(buffer, sizeof buffer, "0x%04x", static_cast<unsigned>(chid));
    return buffer;
}

std::string text(DmbToken token) {
    char buffer[20];
    std::snprintf(buffer, sizeof buffer, "0x%016llx", static_cast<unsigned long long>(token));
    return buffer;
}

std::optional<Eid> Eid::parse(std::string_view text) {
    const auto alphanumeric = [](char c) {
        return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    };
    if (text.empty() || text.size() > 32 || !alphanumeric(text.front()) ||
        text.find("..") != std::string_view::npos) {
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
    out.erase(std::find_if(out.begin(), out.end(), [](char c) { return c == ' ' || c == '\0'; }),
              out.end());
    return out;
}

}  // namespace smc
