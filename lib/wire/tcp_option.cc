// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/wire/tcp_option.h"

namespace smc::tcp {

namespace {

constexpr std::uint8_t kEnd = 0, kNop = 1;

}  // namespace

wire::Bytes find_smc_option_bytes(wire::Bytes options) {
    for (std::size_t at = 0; at < options.size() && options[at] != kEnd;) {
        if (options[at] == kNop) {
            at++;
            continue;
        }
        if (at + 1 == options.size() || options[at + 1] < 2 || options[at + 1] > options.size() - at) {
            return {};
        }
        const std::size_t length = options[at + 1];
        if (options[at] == kExperimentalKind && length >= kOptionBytes) {
            SmcOption option;
            wire::decode_fixed<SmcOption>(&options[at], option);
            if (option.exid == clc::EyeCatcher::kSmcr || option.exid == clc::EyeCatcher::kSmcd) {
                return options.subspan(at, length);
            }
        }
        at += length;
    }
    return {};
}

std::optional<SmcOption> find_smc_option(wire::Bytes options) {
    const wire::Bytes bytes = find_smc_option_bytes(options);
    if (bytes.empty()) {
        return std::nullopt;
    }
    SmcOption option;
    wire::decode_fixed<SmcOption>(bytes.data(), option);
    return option;
}

std::array<std::uint8_t, kOptionBytes> encode(const SmcOption& option) {
    std::array<std::uint8_t, kOptionBytes> bytes{};
    wire::encode_fixed<SmcOption>(option, bytes.data());
    return bytes;
}

}  // namespace smc::tcp
