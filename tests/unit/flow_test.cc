// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The flow of a connection: rings that were given away, windows, closed applications, resets (RFC 7609
// sections 4.4.2, 4.5.1 and 4.8).
#include <catch2/catch.hpp>
#include <utility>

#include "run_flow.h"

using namespace smc;
using namespace smc::flow;
using cdc::Cursor;
using smc::test::run_flow;

// --- a ring that was given to another connection --------------------------------------------------------------------

// RFC 7609 section 4.4.2.
TEST_CASE("flow__into_a_ring_that_was_taken_nothing_more_is_written") {
    Flow flow({.send_size = 100, .window = 100, .receive_size = 100});
    const TimePoint now{};
    REQUIRE(std::holds_alternative<Load>(flow.next(now, true)));
    flow.peer({});
    REQUIRE(std::holds_alternative<Take>(flow.next(now, true)));
    flow.took(10, false, true);
    REQUIRE(flow.ring_taken());
    const Step step = flow.next(now, true);
    REQUIRE(std::holds_alternative<Publish>(step));
    CHECK((std::get<Publish>(step).written == 0 && std::get<Publish>(step).producer.state == cdc::kAbnormalClose));
    const Step last = flow.next(now, true);
    REQUIRE(std::holds_alternative<End>(last));
    CHECK((std::get<End>(last).reason == Reason::kRmbeTakenAgain && std::get<End>(last).how == End::How::kDeliver));
}

// F8.
TEST_CASE("flow__what_the_peer_had_published_is_delivered_although_it_gives_its_ring_away") {
    Flow flow({.send_size = 100, .window = 100, .receive_size = 100});
    REQUIRE(std::holds_alternative<Load>(flow.next({}, true)));
    PeerState peer;
    peer.producer.cursor = {0, 30};
    flow.peer(peer);
    REQUIRE(std::holds_alternative<Deliver>(flow.next({}, true)));
    flow.leg_full();
    REQUIRE(flow.ring_taken());
    REQUIRE(std::holds_alternative<Publish>(flow.next({}, true)));
    const Step last = flow.next({}, true);
    REQUIRE(std::holds_alternative<End>(last));
    CHECK(std::get<End>(last).how == End::How::kDeliver);
    CHECK(flow.receiving().available() == 30);
}

TEST_CASE("flow__a_ring_that_this_side_is_done_with_may_be_taken") {
    Flow flow({.send_size = 100, .window = 100, .receive_size = 100});
    PeerState peer;
    peer.producer.state = cdc::kSendingDone;
    std::uint8_t told = 0;
    for (int steps = 0; (told & cdc::kConnectionClosed) == 0 && steps < 100; steps++) {
        const Step step = flow.next({}, true);
        if (std::holds_alternative<Load>(step)) {
            flow.peer(peer);
        } else if (std::holds_alternative<Take>(step)) {
            flow.leg_ended();
        } else if (std::holds_alternative<LookAtClcSocket>(step)) {
            flow.clc_quiet();
        } else if (std::holds_alternative<Sleep>(step)) {
            flow.slept();
        } else if (const auto* publish = std::get_if<Publish>(&step)) {
            told = publish->producer.state;
        }
    }
    REQUIRE((told & cdc::kConnectionClosed) != 0);
    CHECK((!flow.ring_taken() && !flow.ended()));
}

namespace {

// Lets the flow write all that it may, until it sleeps. Returns how many messages requested the peer's cursor.
int requests_of(Flow& flow, const PeerState& peer, cdc::Producer& published) {
    int requests = 0;
    for (int steps = 0; steps < 100; steps++) {
        const Step step = flow.next({}, true);
        if (std::holds_alternative<Load>(step)) {
            flow.peer(peer);
        } else if (std::holds_alternative<Take>(step)) {
            flow.took(std::get<Take>(step).bytes, false, false);
        } else if (std::holds_alternative<Deliver>(step)) {
            flow.leg_full();
        } else if (const auto* publish = std::get_if<Publish>(&step)) {
            published = publish->producer;
            requests += (publish->producer.flags & cdc::kCursorRequested) != 0 ? 1 : 0;
        } else if (std::holds_alternative<Sleep>(step)) {
            flow.slept();
            return requests;
        }
    }
    FAIL("it does not sleep");
    return requests;
}

}  // namespace

// Linux drops a request for its cursor with each message that it sends, although the cursor may be old.
TEST_CASE("flow__news_of_a_peer_that_leaves_the_window_full_is_answered_by_a_request") {
    Flow flow({.send_size = 1000, .window = 100, .receive_size = 100, .cursor_is_told = true});
    PeerState peer;
    cdc::Producer published;
    CHECK(requests_of(flow, peer, published) == 2);  // with the bytes, and when it is blocked
    CHECK(requests_of(flow, peer, published) == 0);
    peer.message = 1;
    peer.producer.cursor.count = 5;
    CHECK(requests_of(flow, peer, published) == 1);
    CHECK(requests_of(flow, peer, published) == 0);
    peer.message = 2;  // a message that tells nothing new
    CHECK(requests_of(flow, peer, published) == 0);
}

TEST_CASE("flow__two_that_ask_each_other_and_read_nothing_come_to_rest") {
    const Flow::Terms terms{.send_size = 1000, .window = 100, .receive_size = 1000, .cursor_is_told = true};
    Flow a(terms), b(terms);
    PeerState of_a, of_b;
    int messages = 0;
    for (int rounds = 0; rounds < 10; rounds++) {
        messages = requests_of(a, of_b, of_a.producer);
        of_a.message = static_cast<std::uint16_t>(of_a.message + messages);
        messages += requests_of(b, of_a, of_b.producer);
        of_b.message = static_cast<std::uint16_t>(of_b.message + messages);
    }
    CHECK(messages == 0);
}

// --- an application that has closed its socket ----------------------------------------------------------------------

TEST_CASE("flow__an_application_that_has_gone_behind_its_end_takes_nothing_back") {
    const TimePoint now{};
    Flow flow({.send_size = 100, .window = 100, .receive_size = 100, .close_timeout = std::chrono::seconds(10)});
    REQUIRE(std::holds_alternative<Take>([&] {
        Step step = flow.next(now, true);
        while (std::holds_alternative<Load>(step)) {
            flow.peer({});
            step = flow.next(now, true);
        }
        return step;
    }()));
    flow.took(50, false, false);
    REQUIRE(std::holds_alternative<Sleep>(run_flow(flow, {}, now, true)));
    flow.leg_changed({.ending = true, .failed = true});
    REQUIRE(std::holds_alternative<Sleep>(run_flow(flow, {}, now, false)));
    // It waits however late the peer's application reads, and whatever happens to the CLC socket.
    for (int late = 1; late < 5; late++) {
        REQUIRE(std::holds_alternative<Sleep>(run_flow(flow, {}, now + std::chrono::minutes(late), false)));
    }
    PeerState read;
    read.consumer = {0, 50};
    flow.clc_changed();
    const Step step = run_flow(flow, read, now + std::chrono::hours(1), false);
    REQUIRE(std::holds_alternative<End>(step));
    CHECK(std::get<End>(step).reason == Reason::kCloseTimeout);
    CHECK(std::get<End>(step).how == End::How::kOrderly);
}

// The peer writes seven bytes, which the leg does not take. Returns the peer's state.
PeerState fail_to_deliver(Flow& flow, TimePoint now, bool took_error) {
    PeerState wrote;
    wrote.producer.cursor = {0, 7};
    REQUIRE(std::holds_alternative<Load>(flow.next(now, true)));
    flow.peer(wrote);
    REQUIRE(std::holds_alternative<Deliver>(flow.next(now, true)));
    flow.leg_takes_nothing(took_error);
    return wrote;
}

// The application writes 50 bytes and its end, and is reset.
static void write_end_and_reset(Flow& flow, TimePoint now) {
    REQUIRE(std::holds_alternative<Load>(flow.next(now, true)));
    flow.peer({});
    REQUIRE(std::holds_alternative<Take>(flow.next(now, true)));
    flow.took(50, false, false);
    REQUIRE(std::holds_alternative<Sleep>(run_flow(flow, {}, now, true)));
    flow.leg_changed({.ending = true, .failed = true, .reset = true});
}

TEST_CASE("flow__an_application_that_resets_behind_its_end_is_aborted_behind_what_it_wrote") {
    const TimePoint now{};
    Flow flow({.send_size = 100, .window = 100, .receive_size = 100});
    write_end_and_reset(flow, now);
    REQUIRE(std::holds_alternative<Sleep>(run_flow(flow, {}, now + std::chrono::hours(1), false)));
    PeerState read;
    read.consumer = {0, 50};
    const Step step = run_flow(flow, read, now + std::chrono::hours(1), false);
    REQUIRE(std::holds_alternative<End>(step));
    CHECK(std::get<End>(step).reason == Reason::kApplicationReset);
    CHECK(flow.close_state() == CloseMachine::State::kPeerAbortWait);
}

TEST_CASE("flow__an_end_that_a_reset_follows_before_it_is_read_is_an_end") {
    const TimePoint now{};
    Flow flow({.send_size = 100, .window = 100, .receive_size = 100});
    REQUIRE(std::holds_alternative<Load>(flow.next(now, true)));
    flow.leg_changed({.readable = true, .ending = true, .failed = true, .reset = true});
    flow.peer({});
    REQUIRE(std::holds_alternative<Take>(flow.next(now, true)));
    flow.took(50, false, true);
    cdc::Producer told;
    REQUIRE(std::holds_alternative<Sleep>(run_flow(flow, {}, now, true, true, &told)));
    CHECK(told.state == cdc::kSendingDone);
    PeerState read;
    read.consumer = {0, 50};
    const Step step = run_flow(flow, read, now, false);
    REQUIRE(std::holds_alternative<End>(step));
    CHECK(std::get<End>(step).reason == Reason::kApplicationReset);
}

TEST_CASE("flow__an_end_that_hides_an_error_is_none") {
    const TimePoint now{};
    for (const bool took_error : {false, true}) {
        Flow flow({.send_size = 100, .window = 100, .receive_size = 100});
        const PeerState wrote = fail_to_deliver(flow, now, took_error);
        cdc::Producer told;
        run_flow(flow, wrote, now, true, true, &told);
        CHECK(((told.state & cdc::kSendingDone) != 0) == !took_error);
    }
}

// A program in a sockmap refuses the bytes, for example. The peer would wait for ever.
TEST_CASE("flow__a_write_that_fails_on_a_leg_that_lives_resets_the_connection") {
    const TimePoint now{};
    Flow flow({.send_size = 100, .window = 100, .receive_size = 100});
    const PeerState wrote = fail_to_deliver(flow, now, true);
    REQUIRE(std::holds_alternative<Take>(flow.next(now, true)));
    flow.leg_empty();
    const Step step = run_flow(flow, wrote, now, true);
    REQUIRE(std::holds_alternative<End>(step));
    CHECK(std::get<End>(step).reason == Reason::kApplicationReset);
}

TEST_CASE("flow__a_reset_behind_both_ends_resets_nothing") {
    const TimePoint now{};
    Flow flow({.send_size = 100, .window = 100, .receive_size = 100});
    write_end_and_reset(flow, now);
    PeerState ended;
    ended.producer.state = cdc::kSendingDone;
    REQUIRE(std::holds_alternative<Sleep>(run_flow(flow, ended, now, false)));
    ended.producer.state |= cdc::kConnectionClosed;
    ended.consumer = {0, 50};
    const Step step = run_flow(flow, ended, now, false);
    REQUIRE(std::holds_alternative<End>(step));
    CHECK(std::get<End>(step).reason == Reason::kNone);
}

TEST_CASE("flow__what_comes_for_an_application_that_has_gone_is_reset") {
    const TimePoint now{};
    Flow flow({.send_size = 100, .window = 100, .receive_size = 100, .close_timeout = std::chrono::seconds(10)});
    REQUIRE(std::holds_alternative<Sleep>(run_flow(flow, {}, now, true)));
    flow.leg_changed({.ending = true, .failed = true});
    REQUIRE(std::holds_alternative<Sleep>(run_flow(flow, {}, now, false)));
    PeerState more;
    more.producer.cursor = {0, 7};
    const Step step = run_flow(flow, more, now, false);
    REQUIRE(std::holds_alternative<End>(step));
    CHECK(std::get<End>(step).reason == Reason::kApplicationReset);
}

TEST_CASE("flow__the_leg_of_a_reader_stays_until_its_kernel_has_everything") {
    const TimePoint now{};
    Flow flow({.send_size = 100, .window = 100, .receive_size = 100, .close_timeout = std::chrono::seconds(10)});
    PeerState gone;
    gone.producer = {.cursor = {0, 30}, .state = cdc::kSendingDone | cdc::kConnectionClosed};
    REQUIRE(std::holds_alternative<Sleep>(run_flow(flow, gone, now, false)));
    CHECK(flow.next_deadline() == now + std::chrono::seconds(10));
    REQUIRE(std::holds_alternative<Sleep>(run_flow(flow, gone, now + std::chrono::seconds(10), false, false)));
    CHECK(flow.next_deadline() == now + std::chrono::seconds(20));
    flow.clc_changed();  // it is reset: the peer sends nothing more
    REQUIRE(std::holds_alternative<Sleep>(run_flow(flow, gone, now + std::chrono::seconds(11), false, false)));
    cdc::Producer told;
    const Step step = run_flow(flow, gone, now + std::chrono::seconds(20), false, true, &told);
    REQUIRE(std::holds_alternative<End>(step));
    CHECK(std::get<End>(step).how == End::How::kOrderly);
    // The peer has no other way to hear that this side is done (section 4.8.1).
    CHECK(told.state == (cdc::kSendingDone | cdc::kConnectionClosed));
}
