// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Unpredictable numbers from the kernel's random number generator.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace smc {

// At most 256 bytes.
void random_bytes(void* to, std::size_t size);

template <class T>
T random_number() {
    T value{};
    random_bytes(&value, sizeof value);
    return value;
}

// A version 4 UUID (RFC 4122).
std::array<std::uint8_t, 16> random_uuid();

// An unpredictable number other than 0, which many IDs use for "none".
template <class T>
T random_nonzero() {
    T number = 0;
    while (number == 0) {
        number = random_number<T>();
    }
    return number;
}

}  // namespace smc
