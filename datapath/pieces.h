// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Bytes of a ring as spans of memory.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace smc {

// `bytes` from `at` on in a ring, as one or two pieces.
struct Pieces {
    iovec part[2];
    int count;
};
inline Pieces pieces(std::span<std::uint8_t> ring, std::size_t at, std::size_t bytes) {
    const auto first = std::min(bytes, ring.size() - at);
    return {{{ring.data() + at, first}, {ring.data(), bytes - first}}, bytes > first ? 2 : 1};
}

}  // namespace smc
