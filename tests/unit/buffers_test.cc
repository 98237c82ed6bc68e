// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/gateway/buffers.h"

#include <catch2/catch.hpp>

using namespace smc;

namespace {

constexpr std::uint32_t kKib = 1024;

}  // namespace

TEST_CASE("buffers__a_dmb_is_not_much_larger_than_the_receive_buffer_that_was_chosen") {
    CHECK(dmb_bytes(256 * kKib, {.send = 0, .receive = 0}) == 256 * kKib);
    CHECK(dmb_bytes(256 * kKib, {.send = 4 * kKib, .receive = 0}) == 256 * kKib);
    CHECK(dmb_bytes(256 * kKib, {.send = 0, .receive = 4 * kKib}) == 16 * kKib);
    CHECK(dmb_bytes(256 * kKib, {.send = 0, .receive = 40 * kKib}) == 64 * kKib);  // never smaller
    CHECK(dmb_bytes(256 * kKib, {.send = 0, .receive = 4096 * kKib}) == 256 * kKib);
    CHECK(dmb_bytes(16 * kKib, {.send = 0, .receive = 1}) == 16 * kKib);
}

TEST_CASE("buffers__an_rmbe_follows_the_receive_buffer_both_ways_and_the_memory_to_send_from_only_grows") {
    Config::Roce roce;
    roce.rmbe_kib = 256;
    roce.memory_mib = 1024;
    const auto bytes = [&](std::uint32_t send, std::uint32_t receive) {
        const group::ElementBytes chosen = element_bytes(roce, {send, receive});
        return std::pair(chosen.rmbe / kKib, chosen.send / kKib);
    };
    CHECK(bytes(0, 0) == std::pair(256U, 256U));
    CHECK(bytes(8 * kKib, 8 * kKib) == std::pair(16U, 256U));
    CHECK(bytes(4096 * kKib, 4096 * kKib) == std::pair(4096U, 4096U));
    CHECK(bytes(1U << 31, 1U << 31) == std::pair(4096U, 4096U));  // a 256th of the memory
    roce.memory_mib = 16;
    CHECK(bytes(1U << 31, 1U << 31) == std::pair(256U, 256U));
    roce.memory_mib = 1 << 20;
    CHECK(bytes(1U << 31, 1U << 31) == std::pair(16384U, 16384U));
}

TEST_CASE("buffers__a_leg_takes_what_its_application_would_have_sent_and_gives_what_it_would_have_received") {
    const LegBuffers usual = leg_buffers({.send = 0, .receive = 0}, 0);
    CHECK((usual.receive == 128 * 1024 && usual.send == 128 * 1024));
    const LegBuffers chosen = leg_buffers({.send = 8 * kKib, .receive = 6 * kKib}, 0);
    CHECK((chosen.receive == 4 * 1024 && chosen.send == 3 * 1024));
}

TEST_CASE("buffers__a_small_ring_of_the_peer_bounds_what_waits_for_it") {
    CHECK(leg_buffers({.send = 0, .receive = 0}, 16 * kKib).receive == 16 * 1024);
    CHECK(leg_buffers({.send = 0, .receive = 0}, 16384 * kKib).receive == 128 * 1024);
    CHECK(leg_buffers({.send = 8 * kKib, .receive = 0}, 16 * kKib).receive == 4 * 1024);
    CHECK(leg_buffers({.send = 4096 * kKib, .receive = 0}, 256 * kKib).receive == 256 * 1024);
    CHECK(leg_buffers({.send = 4096 * kKib, .receive = 0}, 0).receive == 2048 * 1024);
    CHECK(leg_buffers({.send = 0, .receive = 0}, 16 * kKib).send == 128 * 1024);
}
