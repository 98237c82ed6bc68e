// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Test cases of connections in the data path, over any transport: two connections back to back, each in an engine of
// its own, with real sockets as legs. Include this file once, after defining SMC_TRANSPORTS as the types of transport
// to run over (transports.h).
#pragma once

#include "connection_ends.h"

using namespace smc;
using namespace smc::test;

#define SMC_CONNECTION_CASE(name) TEMPLATE_TEST_CASE("connection__" name, "[connection]", SMC_TRANSPORTS)

SMC_CONNECTION_CASE("both_directions_at_once_arrive_whole_and_in_order") {
    const unsigned seed = 20261121;
    CAPTURE(seed);
    BackToBack<TestType> c;
    std::mt19937 random(seed);
    std::vector<std::uint8_t> up(3'000'000), down(5'000'000);
    for (auto* data : {&up, &down}) {
        for (auto& byte : *data) {
            byte = static_cast<std::uint8_t>(random());
        }
    }
    std::vector<std::uint8_t> got_up, got_down;
    std::thread threads[] = {
        std::thread([&, r = std::mt19937(1)]() mutable { send_all(c.client.app.get(), up, r); }),
        std::thread([&, r = std::mt19937(2)]() mutable { send_all(c.server.app.get(), down, r); }),
        std::thread([&, r = std::mt19937(3)]() mutable { got_up = receive_all(c.server.app.get(), r); }),
        std::thread([&, r = std::mt19937(4)]() mutable { got_down = receive_all(c.client.app.get(), r); })};
    for (auto& thread : threads) {
        thread.join();
    }
    CHECK(got_up == up);  // to the last byte before the end (F2)
    CHECK(got_down == down);
    CHECK(c.client.ends.wait() == Reason::kNone);
    CHECK(c.server.ends.wait() == Reason::kNone);
}

// Its packets need the agent, which must not leave before it has read.
SMC_CONNECTION_CASE("an_application_that_has_ended_its_stream_and_reads_late_keeps_its_leg") {
    BackToBack<TestType> c;
    const int small = 4096;  // but 64 KiB have been offered already
    ::setsockopt(c.client.app.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    ::shutdown(c.client.app.get(), SHUT_WR);
    char byte = 0;
    REQUIRE(::recv(c.server.app.get(), &byte, 1, 0) == 0);
    std::mt19937 random(20261128);
    std::vector<std::uint8_t> data(256 * 1024);
    for (auto& one : data) {
        one = static_cast<std::uint8_t>(random());
    }
    send_all(c.server.app.get(), data, random);
    c.server.app.reset();
    CHECK(c.server.ends.wait() == Reason::kNone);
    CHECK(c.client.ends.none());
    CHECK(receive_all(c.client.app.get(), random) == data);
    CHECK(c.client.ends.wait() == Reason::kNone);
}

// Over SMC-R, where a connection stays with its link, the engine ignores the moves.
SMC_CONNECTION_CASE("both_directions_arrive_whole_while_it_moves_between_engines") {
    BackToBack<TestType> c;
    std::vector<std::uint8_t> data(4'000'000);
    std::mt19937 random(20261128);
    for (auto& byte : data) {
        byte = static_cast<std::uint8_t>(random());
    }
    std::vector<std::uint8_t> got_up, got_down;
    std::atomic<bool> over{false};
    const auto move = [&over](ConnectionSide& side) {
        while (!over) {
            for (const auto& [from, to] :
                 {std::pair(&side.engine, &side.other), std::pair(&side.other, &side.engine)}) {
                (*from)->move(side.connection, **to);
                side.engine->kick(side.connection);  // passed on to the engine where it is
                std::this_thread::sleep_for(std::chrono::microseconds(300));
            }
        }
    };
    std::thread movers[] = {std::thread(move, std::ref(c.client)), std::thread(move, std::ref(c.server))};
    constexpr bool kMoves = std::is_same_v<TestType, DmbPair>;
    while (kMoves && (c.client.engine->moved() == 0 || c.server.engine->moved() == 0)) {
        std::this_thread::yield();
    }
    std::thread threads[] = {
        std::thread([&, r = std::mt19937(1)]() mutable { send_all(c.client.app.get(), data, r); }),
        std::thread([&, r = std::mt19937(2)]() mutable { send_all(c.server.app.get(), data, r); }),
        std::thread([&, r = std::mt19937(3)]() mutable { got_up = receive_all(c.server.app.get(), r); }),
        std::thread([&, r = std::mt19937(4)]() mutable { got_down = receive_all(c.client.app.get(), r); })};
    for (auto& thread : threads) {
        thread.join();
    }
    CHECK(c.client.ends.wait() == Reason::kNone);
    CHECK(c.server.ends.wait() == Reason::kNone);
    over = true;
    for (auto& mover : movers) {
        mover.join();
    }
    CHECK(got_up == data);
    CHECK(got_down == data);
}

// What each side waits for is told once: by an edge that epoll has reported already, or by memory without any event.
SMC_CONNECTION_CASE("messages_go_on_after_each_move") {
    BackToBack<TestType> c;
    for (int round = 0; round < 200; round++) {
        ConnectionSide& mover = round % 2 == 0 ? c.client : c.server;
        Engine& from = round % 4 < 2 ? *mover.engine : *mover.other;
        Engine& to = round % 4 < 2 ? *mover.other : *mover.engine;
        from.move(mover.connection, to);
        for (const auto& [sender, receiver] : {std::pair(&c.client, &c.server), std::pair(&c.server, &c.client)}) {
            char byte = 0;
            REQUIRE(::send(sender->app.get(), "x", 1, 0) == 1);
            REQUIRE(::recv(receiver->app.get(), &byte, 1, 0) == 1);
        }
    }
}

SMC_CONNECTION_CASE("an_urgent_byte_keeps_its_mark") {
    BackToBack<TestType> c;
    const int one = 1;
    ::setsockopt(c.server.app.get(), SOL_SOCKET, SO_OOBINLINE, &one, sizeof one);
    for (int round = 0; round < 20; round++) {
        const std::vector<char> before(3000, 'a'), behind(2000, 'b');
        REQUIRE(::send(c.client.app.get(), before.data(), before.size(), 0) == 3000);
        REQUIRE(::send(c.client.app.get(), "!", 1, MSG_OOB) == 1);
        REQUIRE(::send(c.client.app.get(), behind.data(), behind.size(), 0) == 2000);
        std::vector<char> got(6000);
        std::size_t at = 0;
        while (at < 5001) {  // a read ends at the mark, and the next one begins there
            const ssize_t n = ::recv(c.server.app.get(), &got[at], got.size() - at, 0);
            REQUIRE(n > 0);
            CHECK((at >= 3000 || at + static_cast<std::size_t>(n) <= 3000));
            at += static_cast<std::size_t>(n);
        }
        CHECK(got[2999] == 'a');
        CHECK(got[3000] == '!');
        CHECK(got[3001] == 'b');
        REQUIRE(::send(c.server.app.get(), "x", 1, 0) == 1);  // before the next mark replaces this one
        char answer = 0;
        REQUIRE(::recv(c.client.app.get(), &answer, 1, 0) == 1);
    }
}

SMC_CONNECTION_CASE("a_reset_reaches_the_other_application") {
    BackToBack<TestType> c;
    const linger now{1, 0};
    ::setsockopt(c.client.app.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    c.client.app.reset();
    CHECK(receive_error(c.server.app.get()) == ECONNRESET);
    CHECK(c.client.ends.wait() == Reason::kApplicationReset);
    const Reason reason = c.server.ends.wait();
    CHECK((reason == Reason::kPeerAborted || reason == Reason::kPeerReset));
}

SMC_CONNECTION_CASE("a_stopped_engine_resets_and_never_ends_cleanly_L1") {
    BackToBack<TestType> c;
    c.client.engine.reset();
    CHECK(receive_error(c.client.app.get()) == ECONNRESET);
    CHECK(receive_error(c.server.app.get()) == ECONNRESET);
}

SMC_CONNECTION_CASE("impossible_cursors_end_the_connection_D3") {
    const std::uint32_t size = Hostile<TestType>().receive_size();
    const cdc::Cursor bad[] = {{0, size}, {0, 0xffff0000}, {1, 1}, {2, 0}, {0xffff, 0}};
    for (const auto& cursor : bad) {
        Hostile<TestType> h;
        h.publish({cursor, 0, 0});
        CHECK(h.victim.ends.wait() == Reason::kBadCursor);
        CHECK(receive_error(h.victim.app.get()) == ECONNRESET);
        h.await([](const cdc::Producer& p) { return (p.state & cdc::kAbnormalClose) != 0; });  // F5
    }
}

SMC_CONNECTION_CASE("a_consumer_cursor_beyond_what_was_sent_ends_the_connection_D3") {
    Hostile<TestType> h;
    h.consume({0, 1});
    CHECK(h.victim.ends.wait() == Reason::kBadCursor);
}

SMC_CONNECTION_CASE("a_producer_that_goes_back_in_memory_ends_the_connection_D3") {
    Hostile<TestType> h;
    h.publish({{0, 100}, 0, 0});
    char data[100];
    REQUIRE(::recv(h.victim.app.get(), data, sizeof data, MSG_WAITALL) == 100);
    h.publish({{0, 50}, 0, 0});
    if (h.hand->on(*h.engine, h.hand, [](Transport& t) { return t.reads_peer_memory(); })) {
        CHECK(h.victim.ends.wait() == Reason::kBadCursor);
        return;
    }
    // A message may be older than what is known: Linux sends such ones after a failover.
    h.publish({{0, 130}, 0, 0});
    CHECK(::recv(h.victim.app.get(), data, 30, MSG_WAITALL) == 30);
    h.publish({{0, 130}, 0, cdc::kSendingDone});
    CHECK(::recv(h.victim.app.get(), data, 1, 0) == 0);
}

SMC_CONNECTION_CASE("bytes_behind_the_end_of_a_stream_are_no_clean_end_F2") {
    Hostile<TestType> h;
    h.publish({{0, 100}, 0, cdc::kSendingDone});
    char data[101];
    REQUIRE(::recv(h.victim.app.get(), data, sizeof data, MSG_WAITALL) == 100);
    h.publish({{0, 101}, 0, cdc::kSendingDone});
    CHECK(h.victim.ends.wait() == Reason::kLlcViolation);
    CHECK(::send(h.victim.app.get(), "x", 1, MSG_NOSIGNAL) == -1);
    CHECK(errno == EPIPE);  // as with TCP: it has read the end
    h.await([](const cdc::Producer& p) { return (p.state & cdc::kAbnormalClose) != 0; });  // F5
}

SMC_CONNECTION_CASE("data_on_the_clc_socket_is_a_violation_F4") {
    Hostile<TestType> h;
    REQUIRE(::send(h.clc.get(), "x", 1, MSG_NOSIGNAL) == 1);
    CHECK(h.victim.ends.wait() == Reason::kProtocolError);
    CHECK(receive_error(h.victim.app.get()) == ECONNRESET);
}

SMC_CONNECTION_CASE("an_end_of_the_clc_socket_without_the_closed_flag_is_an_error_not_an_end_F4") {
    Hostile<TestType> h(std::chrono::milliseconds(50));  // the flag comes by the transport, perhaps later
    h.clc.reset();
    CHECK(h.victim.ends.wait() == Reason::kPeerReset);
    CHECK(receive_error(h.victim.app.get()) == ECONNRESET);
}

SMC_CONNECTION_CASE("a_peer_that_never_confirms_the_close_times_out") {
    Hostile<TestType> h(std::chrono::milliseconds(50));
    ::shutdown(h.victim.app.get(), SHUT_WR);
    h.publish({{0, 0}, 0, cdc::kSendingDone});
    CHECK(h.victim.ends.wait() == Reason::kCloseTimeout);
}

SMC_CONNECTION_CASE("a_peer_that_still_reads_is_given_time_to_close") {
    Hostile<TestType> h(std::chrono::milliseconds(20));
    REQUIRE(::send(h.victim.app.get(), "unread", 6, 0) == 6);
    ::shutdown(h.victim.app.get(), SHUT_WR);
    h.publish({{0, 0}, 0, cdc::kSendingDone});
    // The connection has requested the peer's cursor twice: the timeout has passed twice, and it is still there.
    for (int asked = 0; asked < 2; asked++) {
        h.await([](const cdc::Producer& p) {
            return (p.state & cdc::kConnectionClosed) != 0 && (p.flags & cdc::kCursorRequested) != 0;
        });
    }
    CHECK(h.victim.ends.none());
    h.hand->on(*h.engine, h.hand, [&](Transport& t) {
        t.consumed({0, 6});
        t.publish({{0, 0}, 0, cdc::kSendingDone}, 0);
    });
    CHECK(h.victim.ends.wait() == Reason::kCloseTimeout);
}

SMC_CONNECTION_CASE("a_full_ring_says_writer_blocked_and_goes_on_when_read") {
    Hostile<TestType> h;
    const std::uint32_t size = h.receive_size(), window = h.victims_window();
    const std::vector<char> data(window + 1000, 'x');
    REQUIRE(::send(h.victim.app.get(), data.data(), data.size(), 0) == static_cast<ssize_t>(data.size()));
    h.await([](const cdc::Producer& p) { return (p.flags & cdc::kWriterBlocked) != 0; });
    // Some bytes are kept back, to ask a peer that stands still: a sixteenth if the send memory is smaller than the
    // ring.
    const bool asks = !h.hand->on(*h.engine, h.hand, [](Transport& t) { return t.reads_peer_memory(); });
    const std::uint32_t used = window - (window < size ? window / 16 : asks ? flow::Sending::kWholeRingProbes : 0);
    const cdc::Cursor full = cdc::advance({}, used, size);
    CHECK(h.published().producer.cursor == full);
    h.consume(full);
    const cdc::Cursor all = cdc::advance({}, window + 1000, size);
    h.await([&](const cdc::Producer& p) { return p.cursor == all && p.flags == 0; });
}

// As a Linux peer whose report went with a link.
SMC_CONNECTION_CASE("a_peer_that_has_said_nothing_of_a_full_ring_is_asked_with_a_byte") {
    Hostile<TestType> h;
    if (h.hand->on(*h.engine, h.hand, [](Transport& t) { return t.reads_peer_memory(); })) {
        return;  // its cursor is seen
    }
    const std::uint32_t size = h.receive_size();
    const std::vector<char> data(h.victims_window() + 1000, 'x');
    REQUIRE(::send(h.victim.app.get(), data.data(), data.size(), 0) == static_cast<ssize_t>(data.size()));
    h.await([](const cdc::Producer& p) { return (p.flags & cdc::kWriterBlocked) != 0; });
    const cdc::Cursor full = h.published().producer.cursor;
    h.await([&](const cdc::Producer& p) {
        return p.cursor == cdc::advance(full, 1, size) && (p.flags & cdc::kCursorRequested) != 0;
    });
}

SMC_CONNECTION_CASE("what_was_written_before_a_reset_arrives_before_it_F8") {
    const std::string answer = "413 Content Too Large\r\n\r\n";
    for (int i = 0; i < 40; i++) {
        BackToBack<TestType> c;
        const std::vector<char> request(1000, 'r');
        REQUIRE(::send(c.client.app.get(), request.data(), request.size(), 0) == 1000);
        char byte = 0;
        REQUIRE(::recv(c.server.app.get(), &byte, 1, MSG_PEEK) == 1);
        REQUIRE(::send(c.server.app.get(), answer.data(), answer.size(), 0) == static_cast<ssize_t>(answer.size()));
        c.server.app.reset();  // with the request unread
        std::string got(answer.size(), '?');
        REQUIRE(::recv(c.client.app.get(), got.data(), got.size(), MSG_WAITALL) == static_cast<ssize_t>(answer.size()));
        CHECK(got == answer);
        CHECK(receive_error(c.client.app.get()) == ECONNRESET);
    }
}

SMC_CONNECTION_CASE("what_a_peer_published_before_its_abort_is_delivered_F8") {
    Hostile<TestType> h;
    const std::uint32_t size = h.receive_size();
    const int small = 4096;
    ::setsockopt(h.victim.app.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    h.publish({cdc::advance({}, size, size), 0, cdc::kAbnormalClose});
    std::vector<char> got(size);
    CHECK(::recv(h.victim.app.get(), got.data(), got.size(), MSG_WAITALL) == static_cast<ssize_t>(size));
    CHECK(receive_error(h.victim.app.get()) == ECONNRESET);
    CHECK(h.victim.ends.wait() == Reason::kPeerAborted);
}

SMC_CONNECTION_CASE("an_application_that_does_not_read_is_not_waited_for_for_ever_F8") {
    Hostile<TestType> h(std::chrono::milliseconds(50));
    const std::uint32_t size = h.receive_size();
    h.publish({cdc::advance({}, size, size), 0, cdc::kAbnormalClose});
    CHECK(h.victim.ends.wait() == Reason::kPeerAborted);
}

SMC_CONNECTION_CASE("a_late_reader_gets_the_end_of_a_stream_whose_peer_is_gone_since_F8") {
    constexpr auto kTimeout = std::chrono::milliseconds(50);
    Hostile<TestType> h(kTimeout), other(kTimeout);
    std::vector<char> got(h.fill(cdc::kSendingDone | cdc::kAbnormalClose));
    // A connection whose peer has not ended its stream shows that the timeout has passed.
    other.fill(cdc::kAbnormalClose);
    CHECK(other.victim.ends.wait() == Reason::kPeerAborted);
    CHECK(h.victim.ends.none());
    CHECK(::recv(h.victim.app.get(), got.data(), got.size(), MSG_WAITALL) == static_cast<ssize_t>(got.size()));
    CHECK(::recv(h.victim.app.get(), got.data(), got.size(), 0) == 0);
    CHECK(h.victim.ends.wait() == Reason::kPeerAborted);
}

SMC_CONNECTION_CASE("who_writes_instead_of_reading_hears_that_the_peer_is_gone_F8") {
    Hostile<TestType> h(std::chrono::milliseconds(50));
    h.fill(cdc::kSendingDone | cdc::kAbnormalClose);
    h.await([](const cdc::Producer& p) { return (p.state & cdc::kAbnormalClose) != 0; });  // it has seen the abort
    CHECK(h.victim.ends.none());
    REQUIRE(::send(h.victim.app.get(), "x", 1, MSG_NOSIGNAL) == 1);
    CHECK(h.victim.ends.wait() == Reason::kPeerAborted);
    CHECK(::send(h.victim.app.get(), "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0);
    CHECK((errno == EPIPE || errno == ECONNRESET));
}

SMC_CONNECTION_CASE("a_blocked_writer_hears_that_its_peer_has_closed") {
    Hostile<TestType> h;
    const std::vector<char> data(h.victims_window() + 1000, 'x');
    REQUIRE(::send(h.victim.app.get(), data.data(), data.size(), 0) == static_cast<ssize_t>(data.size()));
    h.await([](const cdc::Producer& p) { return (p.flags & cdc::kWriterBlocked) != 0; });
    h.publish({{0, 0}, 0, cdc::kSendingDone | cdc::kConnectionClosed});
    CHECK(h.victim.ends.wait() == Reason::kPeerClosedEarly);
    CHECK(::send(h.victim.app.get(), "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0);
    CHECK((errno == EPIPE || errno == ECONNRESET));
}
