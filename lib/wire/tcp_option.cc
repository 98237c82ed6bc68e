// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/wire/tcp_option.h"

namespace smc::tcp {

namespace {

constexpr std::uint8_t kEnd = 0, kNop = 1;

}  // namespace

std::optional<SmcOption> find_smc_option(wire::Bytes options) {
    for (std::size_t at = 0; at < options.size() && options[at] != kEnd;) {
        if (options[at] == kNop) {
            at++;
            continue;
        }
        if (at + 1 == options.size() || options[at + 1] < 2 || options[at + 1] > options.size() - at) {
            return std::nullopt;
        }
        const std::size_t length = options[at + 1];
        if (options[at] == kExperimentalKind && length >= kOptionBytes) {
            SmcOption option;
            wire::decode_fixed<SmcOption>(&options[at], option);
            if (option.exid == clc::EyeCatcher::kSmcr || option.exid == clc::EyeCatcher::kSmcd) {
                return option;
            }
        }
        at += length;
    }
    return std::nullopt;
}

std::array<std::uint8_t, kOptionBytes> encode(const SmcOption& option) {
    std::array<std::uint8_t, kOptionBytes> bytes{};
    wire::encode_fixed<SmcOption>(option, bytes.data());
    return bytes;
}

}  // namespace smc::tcp
