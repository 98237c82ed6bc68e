// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/wire/cdc.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "messages.h"

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

TEST_CASE("message__fields_stand_where_the_rfc_says") {
    Message m;
    m.sequence = 0x0102;
    m.token = smc::AlertToken{0x03040506};
    m.producer = {0x0708, 0x090a0b0c};
    m.consumer = {0x0d0e, 0x0f101112};
    m.flags = kWriterBlocked | kCursorRequested;
    m.state = kSendingDone | kAbnormalClose;
    const std::vector<std::uint8_t> expected{0xfe, 44, 1, 2,  3,  4,  5,  6,  0,  0,    7,    8, 9, 10, 11,
                                             12,   0,  0, 13, 14, 15, 16, 17, 18, 0x90, 0xa0, 0, 0, 0,  0,
                                             0,    0,  0, 0,  0,  0,  0,  0,  0,  0,    0,    0, 0, 0};
    CHECK(smc::test::bytes(encode(m)) == expected);
    CHECK(std::get<Message>(decode(expected)) == m);
}

TEST_CASE("message__every_generated_one_goes_there_and_back") {
    smc::test::Generator generator(44);
    for (int i = 0; i < 1000; i++) {
        const Message m = generator.cdc();
        REQUIRE(std::get<Message>(decode(encode(m).view())) == m);
    }
}

TEST_CASE("message__what_it_is_not_resets_the_link") {
    const auto good = smc::test::bytes(encode(Message{}));
    const auto verdict = [](const std::vector<std::uint8_t>& bytes) {
        const auto decoded = decode(bytes);
        const auto* fault = std::get_if<smc::Fault>(&decoded);
        return fault == nullptr ? "none" : std::string(fault->field) + ": " + smc::text(fault->verdict);
    };
    auto bad = good;
    bad[0] = 0xff;
    CHECK(verdict(bad) == "type: reset");
    bad = good;
    bad[1] = 45;
    CHECK(verdict(bad) == "length: reset");
    for (std::size_t n = 0; n < good.size(); n++) {
        REQUIRE(verdict({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n)}) == "length: reset");
    }
    // reserved bytes and bits are ignored
    bad = good;
    bad[8] = bad[16] = bad[26] = bad[43] = 0xff;
    bad[24] = 0x07;
    bad[25] = 0x1f;
    CHECK(std::get<Message>(decode(bad)) == Message{});
}

TEST_CASE("smcd__the_area_at_the_start_of_a_dmb") {
    SmcdMessage m;
    m.producer = {{1, 2}, kUrgentPending, kConnectionClosed};
    m.consumer = {3, 4};
    const auto area = encode(m);
    CHECK(area.size == kSmcdBytes);
    CHECK(std::get<SmcdMessage>(decode_smcd(area.view())) == m);
    std::uint64_t word;
    std::memcpy(&word, &area.bytes[kProducerOffset], sizeof word);
    CHECK(word == pack(m.producer));
    std::memcpy(&word, &area.bytes[kConsumerOffset], sizeof word);
    CHECK(unpack_cursor(word) == m.consumer);
    CHECK(std::holds_alternative<smc::Fault>(decode_smcd(area.view().first(31))));
}
