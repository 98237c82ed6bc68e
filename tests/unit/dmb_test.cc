// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <sys/mman.h>

#include <catch2/catch.hpp>

#include "datapath/ism/local_dmb.h"

using namespace smc;

TEST_CASE("dmb__unsealed_or_short_memory_is_refused") {
    constexpr std::uint32_t kDmb = 16 * 1024;
    const UniqueFd plain(::memfd_create("x", MFD_ALLOW_SEALING));
    REQUIRE(::ftruncate(plain.get(), 1 << 20) == 0);
    const auto created = ism::create_dmb(kDmb);
    REQUIRE(created);
    const auto attaches = [&](const UniqueFd& memory, int doorbell, std::uint32_t bytes) {
        return ism::attach_dmb(memory, UniqueFd(::dup(doorbell)), bytes).has_value();
    };
    const int doorbell = created->dmb->doorbell().fd();
    CHECK(attaches(created->memory, doorbell, kDmb));
    CHECK_FALSE(attaches(plain, doorbell, kDmb));
    CHECK_FALSE(attaches(created->memory, doorbell, kDmb * 2));
    CHECK_FALSE(attaches(created->memory, plain.get(), kDmb));  // ringing anything but an eventfd might block
    CHECK_FALSE(attaches(created->memory, -1, kDmb));
}
