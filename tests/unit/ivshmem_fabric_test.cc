// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// DMBs in memory that several machines share, and their doorbells.
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "datapath/smcd/dmb_transport.h"

#include "ivshmem_shared.h"

using namespace smc;
using namespace smc::ivshmem;

namespace {

bool readable(int fd) {
    pollfd one{fd, POLLIN, 0};
    return ::poll(&one, 1, 2000) == 1;
}

}  // namespace

TEST_CASE("ivshmem_fabric__who_stood_still_and_has_lost_its_blocks_leaves_them_alone") {
    constexpr std::uint32_t kRing = 16 * 1024;
    const Shared shared;
    const Node late(shared, 1), other(shared, 2);
    auto own = late.fabric->register_dmb(gid(2), kRing);     // block 0
    auto given = other.fabric->register_dmb(gid(1), kRing);  // block 1
    REQUIRE((own && given));
    auto theirs = late.attach(2, given->token, kRing);
    REQUIRE(theirs);
    auto peer = std::make_shared<smcd::Dmb>(std::move(*theirs));
    auto transport = std::make_unique<smcd::DmbTransport>(own->dmb, peer);
    CHECK(transport->is_valid());

    // Meanwhile the other peers have taken its slot and its blocks, and have overwritten all of them with payload.
    const Mapping memory = shared.map();
    const Geometry geometry = geometry_of(kBytes);
    slots_of(memory)[0].owner = 0;
    std::memcpy(memory.bytes().data() + geometry.words_offset, memory.bytes().data() + geometry.words_offset + 8, 8);
    const auto blocks = memory.bytes().subspan(geometry.data_offset, std::size_t{2} * kBlock);
    std::ranges::fill(blocks, std::uint8_t{0});
    const std::vector<std::uint8_t> before(blocks.begin(), blocks.end());

    CHECK_FALSE(transport->is_valid());
    transport->arm();
    transport->publish({{0, 7}, cdc::kWriterBlocked, cdc::kAbnormalClose}, 7);
    transport->consumed({0, 5});
    transport->idle();
    CHECK_FALSE(peer->lease().park());
    CHECK(peer->lease().gone());
    own->dmb->lease().end();
    late.fabric->deregister(own->token);
    transport.reset();
    peer.reset();
    CHECK(std::ranges::equal(blocks, before));
}

TEST_CASE("ivshmem_fabric__a_dmb_is_for_one_peer_and_once") {
    const Shared shared;
    const Node a(shared, 1), b(shared, 2), c(shared, 3);
    CHECK(a.fabric->reach(gid(2)));
    CHECK_FALSE(a.fabric->reach(gid(9)));
    auto own = a.fabric->register_dmb(gid(2), 256 * 1024);
    REQUIRE(own);
    CHECK_FALSE(c.attach(1, own->token, 256 * 1024));
    CHECK_FALSE(b.attach(3, own->token, 256 * 1024));
    CHECK_FALSE(b.attach(1, own->token, 128 * 1024));
    CHECK_FALSE(b.attach(1, own->token, 512 * 1024));
    CHECK_FALSE(b.attach(1, DmbToken{static_cast<std::uint64_t>(own->token) ^ 1ULL << 40}, 256 * 1024));
    CHECK_FALSE(b.attach(1, DmbToken{0xffffffffffffffff}, 256 * 1024));
    auto theirs = b.attach(1, own->token, 256 * 1024);
    REQUIRE(theirs);
    CHECK_FALSE(b.attach(1, own->token, 256 * 1024));
    std::memset(theirs->ring().data(), 0x5a, theirs->ring().size());
    theirs->store_producer(42);
    CHECK(own->dmb->load_producer() == 42);
    CHECK(std::ranges::all_of(own->dmb->ring(), [](std::uint8_t byte) { return byte == 0x5a; }));
}

TEST_CASE("ivshmem_fabric__a_doorbell_is_heard_once_it_is_armed") {
    const Shared shared;
    const Node a(shared, 1), b(shared, 2);
    auto own = a.fabric->register_dmb(gid(2), 16 * 1024);
    auto theirs = b.attach(1, own->token, 16 * 1024);
    REQUIRE((own && theirs));
    for (int i = 0; i < 50; i++) {
        own->dmb->doorbell().arm();
        theirs->doorbell().ring();
        REQUIRE(readable(own->dmb->doorbell().fd()));
        own->dmb->doorbell().heard();
    }
}

// As a third peer might do that has mapped the area, too.
TEST_CASE("ivshmem_fabric__a_doorbell_that_somebody_has_disarmed_is_heard_all_the_same") {
    const Shared shared;
    const Node a(shared, 1), b(shared, 2);
    auto own = a.fabric->register_dmb(gid(2), 16 * 1024);
    auto theirs = b.attach(1, own->token, 16 * 1024);
    REQUIRE((own && theirs));
    const Mapping mapping = shared.map();
    const auto first = static_cast<std::uint64_t>(own->token) & 0xffff;
    auto* const header =
        reinterpret_cast<DmbHeader*>(mapping.bytes().data() + geometry_of(kBytes).data_offset + first * kBlock);
    own->dmb->doorbell().arm();
    REQUIRE(std::atomic_ref(header->armed).exchange(0) == 1);
    theirs->doorbell().ring();
    CHECK(readable(own->dmb->doorbell().fd()));
}

TEST_CASE("ivshmem_fabric__blocks_come_back_when_nobody_writes_them") {
    const Shared shared;
    Node a(shared, 1);
    auto b = std::make_unique<Node>(shared, 2);
    auto watcher = shared.open(7);
    auto own = a.fabric->register_dmb(gid(2), 16 * 1024);
    auto theirs = b->attach(1, own->token, 16 * 1024);
    REQUIRE(theirs);
    a.fabric->deregister(own->token);
    own->dmb.reset();
    a.io.run_for(600ms);
    CHECK((*watcher)->used() == 1);  // the peer may still write
    theirs = Error{EPIPE, "gone"};
    a.io.restart();
    a.io.run_for(600ms);
    CHECK((*watcher)->used() == 0);

    // A peer that leaves without giving anything back.
    auto other = a.fabric->register_dmb(gid(2), 16 * 1024);
    auto kept = b->attach(1, other->token, 16 * 1024);
    REQUIRE((kept && a.fabric->reach(gid(2))));
    a.fabric->deregister(other->token);
    other->dmb.reset();
    b->fabric.reset();  // its attached DMB stays mapped, but its heartbeat stops
    const auto run_until = [&](const std::function<bool()>& holds) {
        const auto until = std::chrono::steady_clock::now() + 60s;
        while (!holds() && std::chrono::steady_clock::now() < until) {
            a.io.restart();
            a.io.run_for(250ms);
        }
        return holds();
    };
    REQUIRE(run_until([&] { return !a.lost.empty(); }));
    CHECK((*watcher)->used() == 1);  // it may only be paused, and write when it runs again
    CHECK(run_until([&] { return (*watcher)->used() == 0; }));
    CHECK_FALSE((*watcher)->may_write(gid(2)));
    CHECK(std::ranges::count(a.lost, gid(2)) == 1);
}

TEST_CASE("ivshmem_fabric__a_dmb_taken_back_cannot_be_attached") {
    const Shared shared;
    const Node a(shared, 1), b(shared, 2);
    auto own = a.fabric->register_dmb(gid(2), 16 * 1024);
    a.fabric->deregister(own->token);
    CHECK_FALSE(b.attach(1, own->token, 16 * 1024));
}
