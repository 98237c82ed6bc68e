// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// TCP option 254 (RFC 7609 A.1, RFC 6994) in SYN and SYN-ACK: the sender can do SMC. The ID of the experiment is
// "SMCR", which every implementation sends, whichever variants it has; "SMCD" is accepted as well.
#pragma once

#include <array>
#include <optional>

#include "smc/wire/clc/header.h"

namespace smc::tcp {

inline constexpr std::uint8_t kExperimentalKind = 254;
inline constexpr std::size_t kOptionBytes = 6;

struct SmcOption {
    std::uint8_t kind = kExperimentalKind;
    std::uint8_t length = kOptionBytes;
    clc::EyeCatcher exid = clc::EyeCatcher::kSmcr;
};

// Looks through the options of a TCP header, 40 bytes at most. Other options are skipped, including other experiments
// of kind 254; an impossible length ends the search. Returns the option's bytes; empty: there is none.
wire::Bytes find_smc_option_bytes(wire::Bytes options);
std::optional<SmcOption> find_smc_option(wire::Bytes options);
std::array<std::uint8_t, kOptionBytes> encode(const SmcOption& option);

}  // namespace smc::tcp

namespace smc::wire {

template <>
struct Layout<tcp::SmcOption> {
    using O = tcp::SmcOption;
    static constexpr std::size_t kSize = tcp::kOptionBytes;
    static constexpr auto kFields = std::tuple{
        field<&O::kind>(0, 1, "kind", "Kind"),
        field<&O::length>(1, 1, "length", "Length"),
        field<&O::exid>(2, 4, "exid", "ExID, in EBCDIC"),
    };
};
static_assert(fields_fit<tcp::SmcOption>());

}  // namespace smc::wire
