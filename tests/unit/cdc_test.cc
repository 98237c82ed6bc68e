// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/cdc.h"

#include <catch2/catch.hpp>
#include <cstring>

using namespace smc::cdc;

TEST_CASE("producer__stands_in_memory_as_on_the_fabric") {
    const std::uint64_t word = pack(Producer{{0x0102, 0x03040506}, kWriterBlocked | kUrgentPresent, kSendingDone});
    std::uint8_t bytes[8];
    std::memcpy(bytes, &word, 8);
    const std::uint8_t expected[8] = {1, 2, 3, 4, 5, 6, 0xa0, 0x80};
    CHECK(std::memcmp(bytes, expected, 8) == 0);
    CHECK(unpack_producer(word) == Producer{{0x0102, 0x03040506}, 0xa0, 0x80});
    CHECK(unpack_cursor(pack(Cursor{7, 9})) == Cursor{7, 9});
}

TEST_CASE("cursors__wrap_with_their_count") {
    CHECK(advance({0, 90}, 9, 100) == Cursor{0, 99});
    CHECK(advance({0, 90}, 10, 100) == Cursor{1, 0});
    CHECK(advance({0xffff, 90}, 100, 100) == Cursor{0, 90});
    CHECK(distance({0, 10}, {0, 30}, 100) == 20);
    CHECK(distance({0, 90}, {1, 5}, 100) == 15);
    CHECK(distance({5, 50}, {6, 50}, 100) == 100);  // a full ring
    CHECK(distance({5, 50}, {5, 50}, 100) == 0);    // an empty one
    CHECK(distance({0xffff, 50}, {0, 10}, 100) == 60);
}

TEST_CASE("cursors__what_cannot_be_is_refused") {
    CHECK(is_sane({0, 10}, {0, 20}, 100));
    CHECK(is_sane({0, 10}, {1, 10}, 100));
    CHECK_FALSE(is_sane({0, 10}, {1, 11}, 100));   // more than the ring holds
    CHECK_FALSE(is_sane({0, 10}, {0, 9}, 100));    // backwards
    CHECK_FALSE(is_sane({0, 10}, {0, 100}, 100));  // outside the area
    CHECK_FALSE(is_sane({0, 10}, {2, 0}, 100));    // two laps
}
