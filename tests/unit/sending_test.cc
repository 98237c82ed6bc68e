// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The half of a connection that sends: its cursors, its window and urgent data (RFC 7609 sections 4.3, 4.5.1, 4.7).
#include <catch2/catch.hpp>

#include "smc/flow/cdc_inbox.h"
#include "smc/flow/sending.h"

using namespace smc;
using namespace smc::flow;
using cdc::Cursor;
using Room = Sending::Room;

namespace {

constexpr std::uint8_t kUrgent = cdc::kUrgentPending | cdc::kUrgentPresent;

}  // namespace

TEST_CASE("sending__the_producer_cursor_goes_round_the_ring_and_counts_its_laps") {
    Sending s(10, 10);
    for (std::uint32_t lap = 0; lap < 70'000; lap++) {  // the lap number wraps, too
        const auto before = static_cast<std::uint16_t>(lap), behind = static_cast<std::uint16_t>(lap + 1);
        s.took(7, false);
        REQUIRE(s.produced().cursor == Cursor{before, 7});
        REQUIRE((s.room() == 3 && s.state() == Room::kSome));
        s.took(3, false);  // up to the end of the ring is the beginning of the next lap
        REQUIRE(s.produced().cursor == Cursor{behind, 0});
        REQUIRE((s.room() == 0 && s.state() == Room::kFull));
        REQUIRE(s.can_be({before, 4}));
        s.peer_consumed({before, 4});
        REQUIRE((s.room() == 4 && !s.drained()));
        s.peer_consumed({behind, 0});
        REQUIRE((s.room() == 10 && s.drained()));
    }
}

TEST_CASE("sending__a_peer_cannot_have_consumed_what_it_was_not_sent_D3") {
    Sending s(10, 10);
    s.took(8, false);
    s.peer_consumed({0, 6});
    s.took(5, false);  // {1, 3}
    CHECK(s.can_be({0, 6}));
    CHECK(s.can_be({0, 9}));
    CHECK(s.can_be({1, 3}));
    CHECK_FALSE(s.can_be({1, 4}));  // ahead of the producer
    CHECK_FALSE(s.can_be({0, 5}));  // back
    CHECK_FALSE(s.can_be({2, 0}));
    CHECK_FALSE(s.can_be({0xffff, 9}));
    CHECK_FALSE(s.can_be({0, 10}));  // in no ring of 10 bytes
    CHECK_FALSE(s.can_be({0, kNowhere}));
}

TEST_CASE("sending__a_blocked_writer_is_told_once_and_until_it_writes_again") {
    Sending s(4, 4);
    s.took(4, false);
    CHECK(s.block());
    CHECK(s.produced().flags == cdc::kWriterBlocked);
    CHECK_FALSE(s.block());
    s.peer_consumed({0, 2});
    CHECK(s.produced().flags == cdc::kWriterBlocked);  // nothing was written yet (section 4.5.1)
    s.took(2, false);
    CHECK(s.produced().flags == 0);
    CHECK(s.block());
    s.peer_consumed({1, 2});
    s.request_cursor();
    CHECK(s.produced().flags == (cdc::kWriterBlocked | cdc::kCursorRequested));
    s.took(1, false);
    CHECK(s.produced().flags == 0);
}

TEST_CASE("sending__a_window_that_is_smaller_than_the_ring_asks_for_the_cursor") {
    Sending s(1000, 4, true);
    s.took(2, false);
    CHECK(s.produced().flags == 0);
    s.took(2, false);  // the request goes with the bytes: a peer that has consumed them would not answer a later one
    CHECK(s.produced().flags == cdc::kCursorRequested);
    CHECK(s.state() == Sending::Room::kFull);
    CHECK(s.block());
    CHECK(s.produced().flags == (cdc::kWriterBlocked | cdc::kCursorRequested));
    CHECK_FALSE(s.block());
    s.peer_consumed({0, 4});
    s.took(1, false);
    CHECK(s.produced().flags == 0);  // both at once

    Sending whole(4, 4, true);
    whole.took(4, false);
    CHECK(whole.block());
    CHECK(whole.produced().flags == cdc::kWriterBlocked);
}

TEST_CASE("sending__a_peer_that_speaks_is_asked_again_while_the_window_is_full") {
    Sending s(1000, 100, true);
    CHECK_FALSE(s.message_came());
    s.took(s.room(), false);
    CHECK((s.room() == 0 && s.message_came()));
    s.peer_consumed({0, 1});
    CHECK_FALSE(s.message_came());  // there is room: the next bytes carry the request

    Sending whole(100, 100, true);  // every peer tells that a full ring has room again
    whole.took(whole.room(), false);
    CHECK_FALSE(whole.message_came());
}

TEST_CASE("sending__who_has_not_moved_its_cursor_for_long_is_asked_with_a_byte") {
    Sending s(1000, 64, true);
    s.took(s.room(), false);
    std::uint32_t probes = 0;
    for (s.ask_again(); s.room() != 0; s.ask_again()) {
        REQUIRE(s.room() == 1);
        s.took(1, false);
        CHECK((s.produced().flags & cdc::kCursorRequested) != 0);
        REQUIRE(s.state() == Room::kFull);
        REQUIRE(++probes <= 64);
    }
    CHECK(probes == 4);
    CHECK(s.produced().cursor == Cursor{0, 64});  // never more than there is memory
    s.peer_consumed({0, 2});
    CHECK(s.room() == 0);  // as many requests are possible again
    s.ask_again();
    CHECK(s.room() == 1);
    s.peer_consumed({0, 64});
    CHECK(s.room() == 60);

    // The report of a peer whose ring was full may have gone with a link.
    Sending whole(65536, 65536, true);
    CHECK(whole.room() == 65536 - Sending::kWholeRingProbes);
    whole.took(whole.room(), false);
    CHECK(whole.room() == 0);
    whole.ask_again();
    CHECK(whole.room() == 1);
    whole.took(1, false);
    CHECK((whole.room() == 0 && whole.produced().flags == cdc::kCursorRequested));
    whole.peer_consumed(whole.produced().cursor);
    whole.took(whole.room(), false);
    CHECK(whole.produced().flags == 0);

    Sending seen(65536, 65536, false);  // the peer's cursor is in memory: nothing is kept back
    CHECK(seen.room() == 65536);
    seen.took(seen.room(), false);
    seen.ask_again();
    CHECK(seen.room() == 0);
}

TEST_CASE("sending__a_chosen_window_may_be_left_by_a_byte") {
    Sending s(100, 100, true);
    s.took(60, false);
    CHECK(s.set_window(10));
    s.ask_again();
    CHECK(s.room() == 1);
    s.took(1, false);
    CHECK((s.room() == 0 && s.message_came()));
    s.peer_consumed({0, 55});
    CHECK(s.room() == 4);

    Sending wider(100, 100, true);
    wider.took(60, false);
    CHECK(wider.set_window(10));
    wider.ask_again();
    CHECK_FALSE(wider.set_window(100));  // the bytes that exceeded the small window fit the large one
    CHECK(wider.room() == 34);           // six bytes are kept back
}

TEST_CASE("sending__nothing_is_written_behind_an_urgent_byte_before_it_is_consumed_F3") {
    Sending s(100, 100);
    CHECK(s.announce_urgent());
    CHECK_FALSE(s.announce_urgent());  // it was announced already
    CHECK(s.produced().flags == cdc::kUrgentPending);
    s.took(5, false);  // bytes that the application wrote before it
    CHECK((s.produced().flags == cdc::kUrgentPending && s.state() == Room::kSome && s.urgent_pending()));
    s.took(1, true);
    CHECK((s.produced().flags == kUrgent && !s.urgent_pending()));
    CHECK(s.produced().cursor == Cursor{0, 6});  // one byte beyond it: the mark
    s.peer_consumed({0, 5});
    CHECK(s.state() == Room::kUrgent);  // with 99 bytes of room
    s.peer_consumed({0, 6});
    CHECK(s.state() == Room::kSome);
    s.took(3, false);
    CHECK(s.produced().flags == 0);
}

TEST_CASE("sending__another_urgent_byte_is_announced_while_the_first_is_on_its_way") {
    Sending s(100, 100);
    s.took(1, true);  // read before its announcement was
    CHECK((s.produced().flags == kUrgent && s.state() == Room::kUrgent));
    CHECK(s.announce_urgent());
    CHECK_FALSE(s.announce_urgent());
    CHECK((s.produced().flags == kUrgent && s.state() == Room::kUrgent && s.urgent_pending()));
    s.peer_consumed({0, 1});
    s.took(2, false);
    CHECK((s.produced().flags == cdc::kUrgentPending && s.state() == Room::kSome));
    s.took(1, true);
    CHECK((s.produced().flags == kUrgent && s.state() == Room::kUrgent && !s.urgent_pending()));
}

TEST_CASE("sending__a_window_that_becomes_smaller_waits_for_what_is_on_its_way") {
    Sending s(100, 100, true);
    s.took(60, false);
    CHECK(s.set_window(10));  // a peer that has 60 bytes may not tell of having consumed the last of them
    CHECK(s.produced().flags == cdc::kCursorRequested);
    CHECK((s.room() == 0 && s.state() == Room::kFull));
    s.peer_consumed({0, 50});
    CHECK(s.state() == Room::kFull);
    CHECK(s.block());
    CHECK(s.produced().flags == (cdc::kWriterBlocked | cdc::kCursorRequested));
    s.peer_consumed({0, 53});
    CHECK((s.room() == 3 && s.state() == Room::kSome));
    CHECK_FALSE(s.set_window(100));
    CHECK(s.room() == 87);  // six bytes are kept back
    s.peer_consumed({0, 60});
    CHECK_FALSE(s.set_window(10));  // nothing is on its way
    CHECK(s.room() == 10);

    Sending seen(100, 100);  // by whoever looks at the memory
    seen.took(60, false);
    CHECK_FALSE(seen.set_window(10));
    CHECK(seen.produced().flags == 0);
}
