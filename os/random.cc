// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "os/random.h"

#include <sys/random.h>
#include <uuid/uuid.h>

#include <cstdlib>

namespace smc {

void random_bytes(void* to, std::size_t size) {
    // At most 256 bytes: never short, never interrupted once the generator is seeded.
    if (::getrandom(to, size, 0) != static_cast<ssize_t>(size)) {
        std::abort();
    }
}

std::array<std::uint8_t, 16> random_uuid() {
    std::array<std::uint8_t, 16> uuid{};
    ::uuid_generate_random(uuid.data());
    return uuid;
}

}  // namespace smc
