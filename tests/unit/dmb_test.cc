// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <sys/mman.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

#include "datapath/ism/local_dmb.h"
#include "datapath/smcd/dmb_transport.h"

using namespace smc;

namespace {

constexpr std::uint32_t kDmb = 16 * 1024;

}  // namespace

TEST_CASE("dmb__only_the_peer_writes_into_it_D1") {
    const auto own = ism::create_dmb(kDmb), peer = ism::create_dmb(kDmb);
    REQUIRE((own && peer));
    auto attached = ism::attach_dmb(peer->memory, UniqueFd(::dup(peer->dmb->doorbell().fd())), kDmb);
    REQUIRE(attached);
    smcd::DmbTransport transport(own->dmb, std::move(*attached));
    std::memset(transport.space({}, 7).part[0].iov_base, 'x', 7);
    const cdc::Producer producer{{0, 7}, cdc::kWriterBlocked, cdc::kSendingDone};
    transport.publish(producer, 7);
    transport.consumed({0, 5});
    CHECK_FALSE(transport.arm(transport.peer()));
    CHECK((own->dmb->load_producer() == 0 && own->dmb->load_consumer() == 0));
    CHECK(std::ranges::count(own->dmb->ring(), 0) == kDmb - cdc::kSmcdBytes);
    CHECK(peer->dmb->load_producer() == cdc::pack(producer));
    CHECK(peer->dmb->load_consumer() == cdc::pack(cdc::Cursor{0, 5}));
    CHECK(std::ranges::count(peer->dmb->ring(), 'x') == 7);
}

TEST_CASE("dmb__unsealed_or_short_memory_is_refused_D2") {
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
