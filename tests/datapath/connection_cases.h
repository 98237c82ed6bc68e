// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Test cases of connections in the data path, over any transport: two connections back to back, each in an engine of
// its own, with real sockets as legs. Include this file once, after defining SMC_TRANSPORTS as the types of transport
// to run over (transports.h).
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <random>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "datapath/smc_connection.h"
#include "datapath/socket_leg.h"
#include "os/tcp_options.h"
#include "transports.h"

namespace smc::test {

// The agent's default.
constexpr auto kSpin = std::chrono::microseconds(50);

struct SocketPair {
    UniqueFd a, b;
};

inline SocketPair tcp_pair() {
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
    REQUIRE(::listen(listener.get(), 1) == 0);
    ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length);
    SocketPair pair;
    pair.a.reset(::socket(AF_INET, SOCK_STREAM, 0));
    REQUIRE(::connect(pair.a.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
    pair.b.reset(::accept(listener.get(), nullptr, nullptr));
    const timeval timeout{10, 0};
    ::setsockopt(pair.a.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    return pair;
}

// A socket with the options that the agent's sockets have.
inline TcpSocket of_agent(UniqueFd fd) {
    os::prepare_tcp(fd.get());
    os::set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
    return TcpSocket(std::move(fd));
}

struct Ends {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<ConnectionEnd> ends;

    void add(const ConnectionEnd& end) {
        const std::lock_guard lock(mutex);
        ends.push_back(end);
        changed.notify_all();
    }
    Reason wait() {
        std::unique_lock lock(mutex);
        REQUIRE(changed.wait_for(lock, std::chrono::seconds(10), [&] { return !ends.empty(); }));
        return ends.front().reason;
    }
    bool none() {
        const std::lock_guard lock(mutex);
        return ends.empty();
    }
};

// One side: an application's socket, a connection behind it, and how that ended.
struct ConnectionSide {
    Ends ends;
    UniqueFd app;
    std::unique_ptr<Engine> engine = *Engine::start([this](const ConnectionEnd& end) { ends.add(end); }, kSpin);
    std::unique_ptr<Engine> other = *Engine::start([this](const ConnectionEnd& end) { ends.add(end); }, kSpin);
    std::shared_ptr<SmcConnection> connection;

    ~ConnectionSide() {  // either engine may still pass a kick on to the other
        if (engine) {
            engine->stop();
        }
        other->stop();
    }
    void run(UniqueFd clc, End end, std::chrono::milliseconds close_timeout) {
        SocketPair leg = tcp_pair();
        app = std::move(leg.a);
        if (end.task) {
            engine->add_task(end.task);
        }
        SmcConnection::Parts parts{std::make_unique<SocketLeg>(of_agent(std::move(leg.b))),
                                   std::make_unique<SocketClc>(of_agent(std::move(clc))), std::move(end.transport),
                                   close_timeout};
        connection = std::make_shared<SmcConnection>(1, std::make_shared<ConnectionStats>(), std::move(parts));
        engine->add(connection);
    }
};

template <class Transports>
struct BackToBack {
    Transports transports;
    ConnectionSide client, server;

    BackToBack() {
        SocketPair clc = tcp_pair();
        client.run(std::move(clc.a), std::move(transports.ends[0]), std::chrono::seconds(10));
        server.run(std::move(clc.b), std::move(transports.ends[1]), std::chrono::seconds(10));
    }
};

// A transport that the test uses itself, on an engine's thread.
class ByHand final : public Task {
 public:
    explicit ByHand(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {}

    bool start(Poller& poller) override { return transport_->start(poller, source_); }
    void on_event(int, std::uint32_t) override {}
    bool run(TimePoint) override {
        std::vector<std::function<void()>> calls;
        {
            const std::lock_guard lock(mutex_);
            calls.swap(calls_);
        }
        for (const auto& call : calls) {
            call();
        }
        return false;
    }
    void abort(Reason) override { transport_->stop(); }
    [[nodiscard]] bool ended() const override { return false; }

    // Calls `call` with the transport, on the engine's thread, and waits until it has returned.
    template <class Call>
    auto on(Engine& engine, const std::shared_ptr<ByHand>& self, Call call) {
        using Value = decltype(call(*transport_));
        auto promise = std::make_shared<std::promise<Value>>();
        auto result = promise->get_future();
        {
            const std::lock_guard lock(mutex_);
            calls_.push_back([this, promise, call] {
                if constexpr (std::is_void_v<Value>) {
                    call(*transport_);
                    promise->set_value();
                } else {
                    promise->set_value(call(*transport_));
                }
            });
        }
        engine.kick(self);
        REQUIRE(result.wait_for(std::chrono::seconds(10)) == std::future_status::ready);
        return result.get();
    }

 private:
    std::unique_ptr<Transport> transport_;
    Poller::Source source_{this, 0};
    std::mutex mutex_;
    std::vector<std::function<void()>> calls_;
};

// A connection whose peer is the test, which can publish whatever a hostile agent could publish.
template <class Transports>
struct Hostile {
    Transports transports;
    ConnectionSide victim;
    std::unique_ptr<Engine> engine = *Engine::start([](const ConnectionEnd&) {}, kSpin);
    std::shared_ptr<ByHand> hand;
    UniqueFd clc;

    explicit Hostile(std::chrono::milliseconds close_timeout = std::chrono::seconds(10)) {
        SocketPair pair = tcp_pair();
        clc = std::move(pair.a);
        hand = std::make_shared<ByHand>(std::move(transports.ends[0].transport));
        if (transports.ends[0].task) {
            engine->add_task(transports.ends[0].task);
        }
        engine->add_task(hand);
        victim.run(std::move(pair.b), std::move(transports.ends[1]), close_timeout);
    }
    // Publishes a cursor, and writes none of the bytes that the cursor covers.
    void publish(const cdc::Producer& producer) {
        hand->on(*engine, hand, [&](Transport& t) { t.publish(producer, 0); });
    }
    // Publishes the consumer cursor: the message of publish() carries it.
    void consume(const cdc::Cursor& cursor) {
        hand->on(*engine, hand, [&](Transport& t) {
            t.consumed(cursor);
            t.publish({}, 0);
        });
    }
    flow::PeerState published() {
        return hand->on(*engine, hand, [](Transport& t) { return t.peer(); });
    }
    template <class Condition>
    void await(Condition condition) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (!condition(published().producer)) {
            REQUIRE(std::chrono::steady_clock::now() < end);
            std::this_thread::yield();
        }
    }
    void await_consumer(const cdc::Cursor& cursor) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (published().consumer != cursor) {
            REQUIRE(std::chrono::steady_clock::now() < end);
            std::this_thread::yield();
        }
    }
    // Publishes more bytes than the application's kernel takes, so that the leg keeps some, and then the state. Returns
    // how many.
    std::size_t fill(std::uint8_t state) {
        const std::uint32_t size = receive_size();
        const int small = 4096;  // but 64 KiB have been offered already
        ::setsockopt(victim.app.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        std::size_t bytes = 0;
        cdc::Cursor last{};
        while (bytes < std::size_t{256} * 1024) {
            bytes += size;
            last = cdc::advance(last, size, size);
            publish({last, 0, 0});
            await_consumer(last);
        }
        publish({last, 0, state});
        return bytes;
    }
    std::uint32_t receive_size() {
        return hand->on(*engine, hand, [](Transport& t) { return t.send_size(); });
    }
    std::uint32_t victims_window() {
        return hand->on(*engine, hand, [](Transport& t) { return t.window(); });
    }
};

// send_all() and receive_all() run in threads of their own, where Catch2's macros cannot be used. A failure shows in
// the data that arrives.
inline void send_all(int fd, const std::vector<std::uint8_t>& data, std::mt19937& random) {
    for (std::size_t at = 0; at < data.size();) {
        const auto step = std::min<std::size_t>(data.size() - at, random() % 50'000 + 1);
        const ssize_t n = ::send(fd, &data[at], step, MSG_NOSIGNAL);
        if (n <= 0) {
            break;
        }
        at += static_cast<std::size_t>(n);
    }
    ::shutdown(fd, SHUT_WR);
}

inline std::vector<std::uint8_t> receive_all(int fd, std::mt19937& random) {
    std::vector<std::uint8_t> data, chunk(60'000);
    for (;;) {
        const ssize_t n = ::recv(fd, chunk.data(), random() % chunk.size() + 1, 0);
        if (n <= 0) {
            return data;
        }
        data.insert(data.end(), chunk.begin(), chunk.begin() + n);
    }
}

inline int receive_error(int fd) {
    char byte = 0;
    return ::recv(fd, &byte, 1, 0) < 0 ? errno : 0;
}

}  // namespace smc::test

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
