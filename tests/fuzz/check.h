// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Properties that must hold for any bytes that a peer sends.
#pragma once

#include <cstdlib>

#include "smc/wire/describe.h"

namespace smc::fuzz {

inline void require(bool holds) {
    if (!holds) {
        std::abort();
    }
}

// A fault has a text; a message can be printed, and its encoding is decoded and encoded again to the same bytes.
template <class T, class Decode, class Encode>
void check(const Decoded<T>& decoded, Decode decode_again, Encode encode_it) {
    if (const auto* fault = std::get_if<Fault>(&decoded)) {
        require(!fault->text().empty());
        return;
    }
    const auto ours = encode_it(std::get<T>(decoded));
    require(ours.size <= ours.bytes.size());
    const auto again = decode_again(ours.view());
    require(std::holds_alternative<T>(again));
    const auto same = encode_it(std::get<T>(again));
    require(same.size == ours.size && same.bytes == ours.bytes);
}

}  // namespace smc::fuzz
