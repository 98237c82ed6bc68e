// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The flow of a connection whose peer ends its stream, is gone, or resets its CLC socket (RFC 7609 section 4.8).
#include <catch2/catch.hpp>
#include <utility>

#include "run_flow.h"

using namespace smc;
using namespace smc::flow;
using cdc::Cursor;
using smc::test::run_flow;

// --- a peer that ends its stream while bytes wait for room, as Linux does -------------------------------------------

namespace {

constexpr std::chrono::milliseconds kGrace{250};
constexpr Flow::Terms kOfMessages{.send_size = 100,
                                  .window = 100,
                                  .receive_size = 100,
                                  .cursor_is_told = true,
                                  .close_timeout = std::chrono::seconds(10),
                                  .reset_grace = kGrace};

bool has_ended_leg(Flow& flow, const PeerState& peer, TimePoint now) {
    for (;;) {
        const Step step = flow.next(now, true);
        if (std::holds_alternative<Load>(step)) {
            flow.peer(peer);
        } else if (std::holds_alternative<Take>(step)) {
            flow.leg_empty();
        } else if (std::holds_alternative<Deliver>(step)) {
            flow.delivered(std::get<Deliver>(step).piece.bytes);
        } else if (std::holds_alternative<Sleep>(step)) {
            flow.slept();
            return false;
        } else if (std::holds_alternative<EndLeg>(step) || std::holds_alternative<End>(step)) {
            return true;
        }
    }
}

PeerState ended_at(cdc::Cursor cursor, std::uint8_t flags) {
    PeerState peer;
    peer.producer = {.cursor = cursor, .flags = flags, .state = cdc::kConnectionClosed};
    return peer;
}

}  // namespace

TEST_CASE("flow__an_end_while_bytes_wait_for_room_is_not_passed_on_before_them_F2") {
    const TimePoint now{};
    Flow more(kOfMessages);
    CHECK_FALSE(has_ended_leg(more, ended_at({1, 0}, cdc::kWriterBlocked), now));
    CHECK(more.receiving().available() == 0);
    CHECK(more.next_deadline() == now + kGrace);
    CHECK_FALSE(has_ended_leg(more, ended_at({2, 0}, cdc::kWriterBlocked), now + kGrace / 2));
    PeerState done = ended_at({2, 7}, 0);
    done.producer.state |= cdc::kSendingDone;
    CHECK(has_ended_leg(more, done, now + kGrace / 2));
    CHECK(more.receiving().consumed() == cdc::Cursor{2, 7});

    // B stays for several laps, and the reader takes its time.
    Flow laps(kOfMessages);
    CHECK_FALSE(has_ended_leg(laps, ended_at({1, 0}, cdc::kWriterBlocked), now));
    CHECK_FALSE(has_ended_leg(laps, ended_at({2, 0}, cdc::kWriterBlocked), now + 2 * kGrace));
    CHECK(laps.next_deadline() == now + 3 * kGrace);
    CHECK(has_ended_leg(laps, ended_at({2, 0}, cdc::kWriterBlocked), now + 3 * kGrace));

    Flow full(kOfMessages);  // the leg is full meanwhile, which no deadline is about
    CHECK_FALSE(has_ended_leg(full, ended_at({1, 0}, cdc::kWriterBlocked), now));
    REQUIRE(std::holds_alternative<Load>(full.next(now, true)));
    full.peer(ended_at({2, 0}, cdc::kWriterBlocked));
    REQUIRE(std::holds_alternative<Deliver>(full.next(now, true)));
    full.leg_full();
    CHECK_FALSE(has_ended_leg(full, ended_at({2, 0}, cdc::kWriterBlocked), now + 2 * kGrace));
    CHECK(full.next_deadline() == kNever);

    Flow fits(kOfMessages);  // there is nothing more, and the peer says nothing
    CHECK_FALSE(has_ended_leg(fits, ended_at({1, 0}, cdc::kWriterBlocked), now));
    CHECK(has_ended_leg(fits, ended_at({1, 0}, cdc::kWriterBlocked), now + kGrace));
    Flow not_blocked(kOfMessages);
    done = ended_at({1, 0}, 0);
    done.producer.state |= cdc::kSendingDone;  // as agents say
    CHECK(has_ended_leg(not_blocked, done, now));
}

// Linux from 5.18 on, if the process ends while an earlier message is under way: its last bytes come behind the end.
TEST_CASE("flow__bytes_that_linux_holds_back_until_its_last_message_is_acknowledged_come_before_the_end_F2") {
    constexpr std::chrono::milliseconds kCorked{10};
    const TimePoint now{};
    Flow corked(kOfMessages);
    CHECK_FALSE(has_ended_leg(corked, ended_at({0, 10}, 0), now));
    CHECK(corked.receiving().consumed() == cdc::Cursor{0, 10});
    CHECK(corked.next_deadline() == now + kCorked);
    CHECK_FALSE(has_ended_leg(corked, ended_at({0, 17}, 0), now + kCorked / 2));
    CHECK(corked.receiving().consumed() == cdc::Cursor{0, 17});
    CHECK(has_ended_leg(corked, ended_at({0, 17}, 0), now + kCorked / 2 + kCorked));
    // The application has ended its own stream before.
    Flow half_closed(kOfMessages);
    REQUIRE(std::holds_alternative<Load>(half_closed.next(now, true)));
    half_closed.peer({});
    REQUIRE(std::holds_alternative<Take>(half_closed.next(now, true)));
    half_closed.leg_ended();
    CHECK_FALSE(has_ended_leg(half_closed, ended_at({0, 10}, 0), now));
    CHECK_FALSE(has_ended_leg(half_closed, ended_at({0, 17}, 0), now));
    CHECK(half_closed.receiving().consumed() == cdc::Cursor{0, 17});
    CHECK(has_ended_leg(half_closed, ended_at({0, 17}, 0), now + kCorked));
    // What comes behind the end waits for room then.
    Flow blocked(kOfMessages);
    CHECK_FALSE(has_ended_leg(blocked, ended_at({0, 10}, 0), now));
    CHECK_FALSE(has_ended_leg(blocked, ended_at({0, 10}, cdc::kWriterBlocked), now));
    CHECK(blocked.next_deadline() == now + kGrace);
    CHECK(has_ended_leg(blocked, ended_at({0, 10}, cdc::kWriterBlocked), now + kGrace));
    // A slow reader: the time runs from the end on, and afterwards everything is there.
    for (const bool late : {true, false}) {
        Flow slow(kOfMessages);
        REQUIRE(std::holds_alternative<Load>(slow.next(now, true)));
        slow.peer(ended_at({0, 10}, 0));
        REQUIRE(std::holds_alternative<Deliver>(slow.next(now, true)));
        slow.leg_full();
        CHECK_FALSE(has_ended_leg(slow, ended_at({0, 10}, 0), now));
        CHECK(slow.next_deadline() == now + kCorked);
        CHECK_FALSE(has_ended_leg(slow, ended_at({0, 10}, 0), now + (late ? kCorked : kCorked / 2)));
        slow.abort(Reason::kLinkDown);
        Step last = slow.next(now, true);
        if (std::holds_alternative<Publish>(last)) {
            last = slow.next(now, true);
        }
        REQUIRE(std::holds_alternative<End>(last));
        CHECK((std::get<End>(last).how == End::How::kDeliver && std::get<End>(last).peer_done == late));
    }
    // Where the peer's memory is read, everything is there.
    Flow memory({.send_size = 100, .window = 100, .receive_size = 100});
    CHECK(has_ended_leg(memory, ended_at({0, 10}, 0), now));
}

TEST_CASE("flow__an_end_that_waits_for_bytes_waits_no_longer_when_the_application_has_gone") {
    const TimePoint now{};
    Flow flow(kOfMessages);
    REQUIRE(std::holds_alternative<Sleep>(run_flow(flow, {}, now, true)));
    PeerState end;
    end.producer = {.cursor = {1, 0}, .flags = cdc::kWriterBlocked, .state = cdc::kSendingDone};
    REQUIRE(std::holds_alternative<Sleep>(run_flow(flow, end, now, false)));
    CHECK(flow.next_deadline() == now + kGrace);
    flow.leg_changed({.ending = true, .failed = true});
    REQUIRE(std::holds_alternative<Sleep>(run_flow(flow, end, now, false)));
    CHECK(flow.next_deadline() > now + kGrace);
}

TEST_CASE("flow__who_has_ended_its_stream_waits_for_no_room") {
    Flow flow(kOfMessages);
    PeerState peer;
    cdc::Producer told;
    bool full = false;
    for (int steps = 0; steps < 100; steps++) {
        const Step step = flow.next({}, true);
        if (std::holds_alternative<Load>(step)) {
            flow.peer(peer);
        } else if (std::holds_alternative<Take>(step)) {
            std::exchange(full, true) ? flow.leg_ended() : flow.took(std::get<Take>(step).bytes, false, false);
        } else if (std::holds_alternative<Publish>(step)) {
            told = std::get<Publish>(step).producer;
        } else if (std::holds_alternative<Sleep>(step)) {
            flow.slept();
            if ((told.flags & cdc::kWriterBlocked) != 0) {
                peer.consumer = {0, 1};
            }
        }
    }
    CHECK(told.state == cdc::kSendingDone);
    CHECK((told.flags & cdc::kWriterBlocked) == 0);
}

TEST_CASE("flow__a_message_with_an_older_producer_cursor_takes_nothing_back") {
    Flow flow(kOfMessages);
    PeerState peer;
    peer.producer.cursor = {0, 80};
    REQUIRE(std::holds_alternative<Sleep>(run_flow(flow, peer, {})));
    peer.producer.cursor = {0, 10};
    REQUIRE(std::holds_alternative<Sleep>(run_flow(flow, peer, {})));
    CHECK(flow.receiving().produced().cursor == cdc::Cursor{0, 80});
    CHECK(flow.receiving().available() == 0);
    peer.producer.cursor = {1, 5};
    REQUIRE(std::holds_alternative<Sleep>(run_flow(flow, peer, {})));
    CHECK(flow.receiving().consumed() == cdc::Cursor{1, 5});
    peer.producer.cursor = {0, 4};  // more than a lap ago
    const Step step = run_flow(flow, peer, {});
    REQUIRE(std::holds_alternative<End>(step));
    CHECK(std::get<End>(step).reason == Reason::kBadCursor);
}

TEST_CASE("flow__an_application_that_writes_to_a_peer_that_has_closed_is_given_what_that_sent_before_F8") {
    Flow flow({.send_size = 100, .window = 100, .receive_size = 100});
    PeerState closed;
    closed.producer = {.cursor = {0, 30}, .state = cdc::kSendingDone | cdc::kConnectionClosed};
    REQUIRE(std::holds_alternative<Load>(flow.next({}, true)));
    flow.peer(closed);
    REQUIRE(std::holds_alternative<Deliver>(flow.next({}, true)));
    flow.leg_full();
    REQUIRE(std::holds_alternative<Take>(flow.next({}, true)));
    flow.took(1, false, true);
    REQUIRE(std::holds_alternative<Publish>(flow.next({}, true)));
    const Step last = flow.next({}, true);
    REQUIRE(std::holds_alternative<End>(last));
    CHECK(std::get<End>(last).reason == Reason::kPeerClosedEarly);
    CHECK(std::get<End>(last).how == End::How::kDeliver);
    CHECK(std::get<End>(last).peer_done);
    CHECK(flow.receiving().available() == 30);
}

TEST_CASE("flow__whether_the_peer_had_ended_its_stream_before_it_was_gone_is_told_F8") {
    const bool ended = GENERATE(false, true);
    Flow flow({.send_size = 100, .window = 100, .receive_size = 100});
    PeerState state;
    state.producer = {.cursor = {0, 30}, .state = ended ? cdc::kSendingDone : std::uint8_t{0}};
    REQUIRE(std::holds_alternative<Load>(flow.next({}, true)));
    flow.peer(state);
    REQUIRE(std::holds_alternative<Deliver>(flow.next({}, true)));
    flow.leg_full();
    REQUIRE(std::holds_alternative<Take>(flow.next({}, true)));
    flow.leg_empty();
    flow.abort(Reason::kPeerReset);
    REQUIRE(std::holds_alternative<Publish>(flow.next({}, true)));
    const Step last = flow.next({}, true);
    REQUIRE(std::holds_alternative<End>(last));
    CHECK(std::get<End>(last).peer_done == ended);
}

// An end in front of which bytes may be missing is not passed on: the application would take it for the whole.
TEST_CASE("flow__an_end_in_front_of_which_bytes_may_be_missing_is_not_the_end_F8") {
    const auto [reason, flags, ended] =
        GENERATE(table<Reason, std::uint8_t, bool>({{Reason::kLinkDown, std::uint8_t{0}, true},
                                                    {Reason::kLinkDown, std::uint8_t{cdc::kWriterBlocked}, false},
                                                    {Reason::kDataLost, std::uint8_t{0}, false}}));
    Flow flow({.send_size = 100, .window = 100, .receive_size = 100, .reset_grace = std::chrono::milliseconds(1)});
    PeerState state;
    state.producer = {.cursor = {0, 30}, .flags = flags, .state = cdc::kSendingDone};
    REQUIRE(std::holds_alternative<Load>(flow.next({}, true)));
    flow.peer(state);
    REQUIRE(std::holds_alternative<Deliver>(flow.next({}, true)));
    flow.leg_full();
    flow.abort(reason);
    Step last = flow.next({}, true);
    while (!std::holds_alternative<End>(last)) {
        last = flow.next({}, true);
    }
    CHECK(std::get<End>(last).how == End::How::kDeliver);
    CHECK(std::get<End>(last).peer_done == ended);
}

// --- the reset of a CLC socket --------------------------------------------------------------------------------------

TEST_CASE("flow__what_a_reset_has_overtaken_is_waited_for_F4") {
    const TimePoint now{};
    Flow flow({.send_size = 100, .window = 100, .receive_size = 100, .reset_grace = std::chrono::milliseconds(250)});
    flow.clc_changed();
    REQUIRE(std::holds_alternative<Sleep>(run_flow(flow, {}, now)));
    REQUIRE(flow.next_deadline() == now + std::chrono::milliseconds(250));
    PeerState late;
    late.producer = {.cursor = {0, 7}, .state = cdc::kAbnormalClose};
    const Step step = run_flow(flow, late, now + std::chrono::milliseconds(249));
    REQUIRE(std::holds_alternative<End>(step));
    CHECK(std::get<End>(step).reason == Reason::kPeerAborted);
    CHECK(std::get<End>(step).how == End::How::kDeliver);
    CHECK(flow.receiving().available() == 7);
}

TEST_CASE("flow__a_reset_that_nothing_explains_ends_it_F4") {
    const TimePoint now{};
    Flow graced({.send_size = 100, .window = 100, .receive_size = 100, .reset_grace = std::chrono::milliseconds(250)});
    graced.clc_changed();
    REQUIRE(std::holds_alternative<Sleep>(run_flow(graced, {}, now)));
    graced.clc_changed();  // reported again: no reason to wait longer
    REQUIRE(std::holds_alternative<Sleep>(run_flow(graced, {}, now + std::chrono::milliseconds(200))));
    const Step late = run_flow(graced, {}, now + std::chrono::milliseconds(250));
    REQUIRE(std::holds_alternative<End>(late));
    CHECK(std::get<End>(late).reason == Reason::kPeerReset);

    Flow strict({.send_size = 100, .window = 100, .receive_size = 100});
    strict.clc_changed();
    const Step at_once = run_flow(strict, {}, now);
    REQUIRE(std::holds_alternative<End>(at_once));
    CHECK(std::get<End>(at_once).reason == Reason::kPeerReset);
}
