// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A peer moves its connections from one link of a group to another: what may have been lost on the way (C4).
#include "two_links.h"

using namespace smc;
using namespace smc::smcr;

namespace {

// With a connection whose peer has sent a message over link 1, and its first 100 bytes.
struct Begun : Group {
    Connection connection{*driver, kToken, 1};
    Begun() {
        peer_says(1, 1, 0, 100);
        run(1);
    }
};

}  // namespace

TEST_CASE("group_driver__a_move_is_judged_behind_all_that_came_over_the_other_links_C4") {
    Group group;
    Connection connection(*group.driver, kToken, 1);
    constexpr std::uint16_t kSaid = 40;  // more than are taken in one turn
    for (std::uint16_t sequence = 1; sequence <= kSaid; sequence++) {
        group.peer_says(1, sequence);
    }
    group.peer_says(2, kSaid, cdc::kFailoverValidation);
    group.run(2);  // before link 1
    CHECK_FALSE(connection.ended());
    CHECK_FALSE(connection.receiver->lost);
    CHECK(connection.receiver->inbox.latest().sequence == kSaid);
    group.peer_says(2, kSaid + 1);
    group.run(2);
    CHECK(connection.receiver->inbox.latest().sequence == kSaid + 1);
}

TEST_CASE("group_driver__a_connection_ends_when_something_was_lost_on_the_link_that_its_peer_left") {
    Group group;
    Connection connection(*group.driver, kToken, 1);
    group.peer_says(1, 1);
    group.peer_says(2, 2, cdc::kFailoverValidation);
    group.run(2);
    CHECK(connection.reason == Reason::kDataLost);
}

TEST_CASE("group_driver__a_connection_that_is_moved_without_a_validation_loses_nothing_unnoticed_C4") {
    // Linux moves a connection that is closing, and writes on: what was under way over the other link is not sent
    // again.
    Begun group;
    group.peer_says(2, 4, 0, 400);
    group.run(2);
    CHECK(group.connection.reason == Reason::kDataLost);
    CHECK(group.connection.receiver->inbox.latest().sequence == 1);
}

TEST_CASE("group_driver__a_connection_that_is_moved_without_a_validation_goes_on_if_all_arrived_C4") {
    Begun group;
    group.peer_says(1, 2, 0, 200);
    group.peer_says(2, 3, 0, 300);
    group.run(2);  // before link 1
    CHECK_FALSE(group.connection.ended());
    CHECK(group.connection.receiver->inbox.latest().sequence == 3);
    group.peer_says(1, 6, 0, 300);  // a last message: it announces no data
    group.run(1);
    CHECK_FALSE(group.connection.ended());
    group.peer_says(2, 6, cdc::kFailoverValidation);
    group.peer_says(2, 9, 0, 500);  // sent again after the validation, with other numbers
    group.run(2);
    CHECK_FALSE(group.connection.ended());
    CHECK(group.connection.receiver->inbox.latest().sequence == 9);
}

TEST_CASE("group_driver__what_comes_late_over_a_link_that_was_left_does_not_spoil_the_validation_C4") {
    Begun group;
    group.peer_says(2, 1, cdc::kFailoverValidation);
    group.run(2);
    group.peer_says(1, 2, 0, 200);
    group.run(1);
    group.peer_says(2, 5, 0, 500);  // what the peer had sent after message 1 is sent again, under new numbers
    group.run(2);
    CHECK_FALSE(group.connection.ended());
    CHECK(group.connection.receiver->inbox.latest().sequence == 5);
}

TEST_CASE("group_driver__a_validation_stands_for_its_own_link_alone_C4") {
    Begun group;
    group.peer_says(2, 1, cdc::kFailoverValidation);  // the peer moves, and back at once
    group.run(2);
    group.peer_says(1, 1, cdc::kFailoverValidation);
    group.peer_says(1, 2, 0, 200);
    group.run(1);
    CHECK_FALSE(group.connection.ended());
    group.peer_says(2, 5, 0, 500);
    group.run(2);
    CHECK(group.connection.reason == Reason::kDataLost);
}

TEST_CASE("group_driver__the_first_message_that_arrives_may_show_a_gap_C4") {
    Group group;
    Connection connection(*group.driver, kToken, 1);
    group.peer_says(2, 3, 0, 100, cdc::kConnectionClosed);  // 1, with 100 bytes, and 2 went over link 1
    group.run(2);
    CHECK(connection.reason == Reason::kDataLost);
    CHECK(connection.receiver->inbox.empty());
}

TEST_CASE("group_driver__a_server_that_waits_for_the_first_message_hears_of_a_gap_C4") {
    const bool waits_before = GENERATE(true, false), validation = GENERATE(true, false);
    Group group;
    Connection connection(*group.driver, kToken, 1);
    std::optional<bool> aborts;
    const auto wait = [&] { group.driver->await_message(kToken, [&](bool so) { aborts = so; }); };
    if (waits_before) {
        wait();
    }
    if (validation) {
        group.peer_says(2, 1, cdc::kFailoverValidation);
    } else {
        group.peer_says(2, 3, 0, 100);
    }
    group.run(2);
    if (!waits_before) {
        wait();
    }
    CHECK(aborts == true);
}

TEST_CASE("group_driver__a_first_message_without_data_shows_no_gap_C4") {
    Group group;
    constexpr std::uint32_t kBase = cdc::kEyeCatcherBytes;
    Connection connection(*group.driver, kToken, 1, kBase);
    group.peer_says(2, 3, 0, kBase);
    group.run(2);
    CHECK_FALSE(connection.ended());
    CHECK(connection.receiver->inbox.latest().sequence == 3);
}

TEST_CASE("group_driver__a_message_of_a_link_left_in_between_does_not_spoil_the_validation_C4") {
    Begun group;
    group.peer_says(2, 1, cdc::kFailoverValidation);  // the peer moves to link 2, and back to link 1
    group.run(2);
    group.peer_says(1, 1, cdc::kFailoverValidation);
    group.run(1);
    group.peer_says(2, 2, 0, 200);  // was under way, and is sent again, under a new number, with what follows
    group.run(2);
    group.peer_says(1, 5, 0, 500);
    group.run(1);
    CHECK_FALSE(group.connection.ended());
    CHECK(group.connection.receiver->inbox.latest().sequence == 5);
}

TEST_CASE("group_driver__nothing_is_taken_after_a_gap_C4") {
    Begun group;
    group.peer_says(2, 4, 0, 400);
    group.peer_says(2, 5, 0, 100, cdc::kSendingDone);  // shows no gap by itself, and would end the stream in order
    group.run(2);
    CHECK(group.connection.reason == Reason::kDataLost);
    CHECK(group.connection.receiver->inbox.latest().sequence == 1);
}

TEST_CASE("group_driver__an_rmbe_stays_after_a_gap_because_the_writes_may_still_come_C2") {
    Begun group;
    const auto rmbes = std::make_shared<Counted>();
    group.peer_says(2, 4, 0, 400, cdc::kConnectionClosed);
    group.run(2);
    REQUIRE(group.connection.reason == Reason::kDataLost);
    group.driver->linger(kToken, Element(rmbes, 0, {}));
    group.peer_says(2, 5, 0, 400, cdc::kAbnormalClose);
    group.run(2);
    CHECK(rmbes->free == 0);
    group.driver->close();
    CHECK(rmbes->free == 1);
}

TEST_CASE("group_driver__an_rmbe_stays_if_the_gap_shows_after_the_end_of_its_connection_C2") {
    Begun group;
    const auto rmbes = std::make_shared<Counted>();
    group.driver->linger(kToken, Element(rmbes, 0, {}));
    group.peer_says(2, 4, 0, 400, cdc::kConnectionClosed);
    group.run(2);
    CHECK(rmbes->free == 0);
}
