// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Two SMC-D flows back to back, each in an engine of its own, over real loopback sockets and real DMBs.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <condition_variable>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "datapath/engine.h"
#include "datapath/ism/dmb_transport.h"
#include "datapath/smc_flow.h"

using namespace smc;

namespace {

constexpr std::uint32_t kDmb = 16 * 1024;

struct Pair {
    UniqueFd a, b;
};

Pair tcp_pair() {
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
    REQUIRE(::listen(listener.get(), 1) == 0);
    ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length);
    Pair pair;
    pair.a.reset(::socket(AF_INET, SOCK_STREAM, 0));
    REQUIRE(::connect(pair.a.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
    pair.b.reset(::accept(listener.get(), nullptr, nullptr));
    const timeval patience{10, 0};
    ::setsockopt(pair.a.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return pair;
}

struct Ends {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<FlowEnd> ends;

    void add(const FlowEnd& end) {
        const std::lock_guard lock(mutex);
        ends.push_back(end);
        changed.notify_all();
    }
    Reason wait() {
        std::unique_lock lock(mutex);
        REQUIRE(changed.wait_for(lock, std::chrono::seconds(10), [&] { return !ends.empty(); }));
        return ends.front().reason;
    }
};

ism::Dmb other_view(const ism::Dmb& dmb) {
    auto attached = ism::Dmb::attach(UniqueFd(::dup(dmb.memory_fd())), UniqueFd(::dup(dmb.doorbell_fd())), dmb.bytes());
    REQUIRE(attached);
    return std::move(*attached);
}

// One side: an application's socket, a flow behind it, and how the flow ended.
struct Side {
    Ends ends;
    UniqueFd app;
    std::shared_ptr<ism::Dmb> own = std::make_shared<ism::Dmb>(*ism::Dmb::create(kDmb));
    std::unique_ptr<Engine> engine = *Engine::start([this](const FlowEnd& end) { ends.add(end); });

    void run(UniqueFd wire, ism::Dmb peer, std::chrono::milliseconds close_timeout = std::chrono::seconds(10)) {
        Pair leg = tcp_pair();
        app = std::move(leg.a);
        engine->add(std::make_shared<SmcFlow>(
            1, std::make_shared<FlowStats>(),
            SmcFlow::Parts{Leg(std::move(leg.b)), Leg(std::move(wire)),
                           std::make_unique<ism::DmbTransport>(own, std::move(peer)), close_timeout}));
    }
};

struct Connection {
    Side client, server;
    Connection() {
        Pair wire = tcp_pair();
        ism::Dmb of_server = other_view(*server.own);
        ism::Dmb of_client = other_view(*client.own);
        client.run(std::move(wire.a), std::move(of_server));
        server.run(std::move(wire.b), std::move(of_client));
    }
};

// A flow whose peer is the test: what it writes into the DMB is what a hostile agent could write.
struct Hostile {
    Side victim;
    ism::Dmb mine = *ism::Dmb::create(kDmb);  // the victim sends into it
    ism::Dmb its;                             // the victim receives from it
    UniqueFd wire;

    explicit Hostile(std::chrono::milliseconds close_timeout = std::chrono::seconds(10))
        : its(other_view(*victim.own)) {
        Pair pair = tcp_pair();
        wire = std::move(pair.a);
        victim.run(std::move(pair.b), other_view(mine), close_timeout);
    }
    void publish(const cdc::Producer& producer) {
        its.store_producer(cdc::pack(producer));
        its.ring_doorbell();
    }
};

void send_all(int fd, const std::vector<std::uint8_t>& data, std::mt19937& random) {
    for (std::size_t at = 0; at < data.size();) {
        const auto step = std::min<std::size_t>(data.size() - at, random() % 50'000 + 1);
        const ssize_t n = ::send(fd, &data[at], step, MSG_NOSIGNAL);
        REQUIRE(n > 0);
        at += static_cast<std::size_t>(n);
    }
    ::shutdown(fd, SHUT_WR);
}

std::vector<std::uint8_t> receive_all(int fd, std::mt19937& random) {
    std::vector<std::uint8_t> data, chunk(60'000);
    for (;;) {
        const ssize_t n = ::recv(fd, chunk.data(), random() % chunk.size() + 1, 0);
        REQUIRE(n >= 0);
        if (n == 0) {
            return data;
        }
        data.insert(data.end(), chunk.begin(), chunk.begin() + n);
    }
}

int receive_error(int fd) {
    char byte = 0;
    return ::recv(fd, &byte, 1, 0) < 0 ? errno : 0;
}

}  // namespace

TEST_CASE("smcd_flow__both_directions_at_once_arrive_whole_and_in_order") {
    const unsigned seed = 20261121;
    CAPTURE(seed);
    Connection c;
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
    CHECK(got_up == up);
    CHECK(got_down == down);
    CHECK(c.client.ends.wait() == Reason::kNone);
    CHECK(c.server.ends.wait() == Reason::kNone);
}

TEST_CASE("smcd_flow__a_reset_reaches_the_other_application") {
    Connection c;
    const linger now{1, 0};
    ::setsockopt(c.client.app.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    c.client.app.reset();
    CHECK(receive_error(c.server.app.get()) == ECONNRESET);
    CHECK(c.client.ends.wait() == Reason::kApplicationReset);
    const Reason reason = c.server.ends.wait();
    CHECK((reason == Reason::kPeerAborted || reason == Reason::kWireReset));
}

TEST_CASE("smcd_flow__a_stopped_engine_resets_and_never_ends_cleanly") {
    Connection c;
    c.client.engine.reset();
    CHECK(receive_error(c.client.app.get()) == ECONNRESET);
    CHECK(receive_error(c.server.app.get()) == ECONNRESET);
}

TEST_CASE("smcd_flow__impossible_cursors_end_the_connection") {
    const std::uint32_t size = kDmb - cdc::kSmcdBytes;
    const cdc::Cursor bad[] = {{0, size}, {0, 0xffffffff}, {1, 1}, {2, 0}, {0xffff, 0}};
    for (const auto& cursor : bad) {
        Hostile h;
        h.publish({cursor, 0, 0});
        CHECK(h.victim.ends.wait() == Reason::kBadCursor);
        CHECK(receive_error(h.victim.app.get()) == ECONNRESET);
        CHECK((cdc::unpack_producer(h.mine.load_producer()).state & cdc::kAbnormalClose) != 0);
    }
}

TEST_CASE("smcd_flow__a_consumer_cursor_beyond_what_was_sent_ends_the_connection") {
    Hostile h;
    h.its.store_consumer(cdc::pack(cdc::Cursor{0, 1}));
    h.its.ring_doorbell();
    CHECK(h.victim.ends.wait() == Reason::kBadCursor);
}

TEST_CASE("smcd_flow__a_producer_that_goes_back_ends_the_connection") {
    Hostile h;
    h.publish({{0, 100}, 0, 0});
    char data[100];
    REQUIRE(::recv(h.victim.app.get(), data, sizeof data, MSG_WAITALL) == 100);
    h.publish({{0, 50}, 0, 0});
    CHECK(h.victim.ends.wait() == Reason::kBadCursor);
}

TEST_CASE("smcd_flow__data_on_the_tcp_connection_is_a_violation") {
    Hostile h;
    REQUIRE(::send(h.wire.get(), "x", 1, MSG_NOSIGNAL) == 1);
    CHECK(h.victim.ends.wait() == Reason::kProtocolError);
    CHECK(receive_error(h.victim.app.get()) == ECONNRESET);
}

TEST_CASE("smcd_flow__a_tcp_end_without_the_closed_flag_is_an_error_not_an_end") {
    Hostile h(std::chrono::milliseconds(50));  // the flag goes another way and may be later
    h.wire.reset();
    CHECK(h.victim.ends.wait() == Reason::kWireReset);
    CHECK(receive_error(h.victim.app.get()) == ECONNRESET);
}

TEST_CASE("smcd_flow__a_peer_that_never_confirms_the_close_times_out") {
    Hostile h(std::chrono::milliseconds(50));
    ::shutdown(h.victim.app.get(), SHUT_WR);
    h.publish({{0, 0}, 0, cdc::kSendingDone});
    CHECK(h.victim.ends.wait() == Reason::kCloseTimeout);
}

TEST_CASE("smcd_flow__a_peer_that_still_reads_is_given_time_to_close") {
    Hostile h(std::chrono::milliseconds(20));
    REQUIRE(::send(h.victim.app.get(), "unread", 6, 0) == 6);
    ::shutdown(h.victim.app.get(), SHUT_WR);
    h.publish({{0, 0}, 0, cdc::kSendingDone});
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while ((cdc::unpack_producer(h.mine.load_producer()).state & cdc::kConnectionClosed) == 0) {
        REQUIRE(std::chrono::steady_clock::now() < end);
        std::this_thread::yield();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // five times what it may take
    {
        const std::lock_guard lock(h.victim.ends.mutex);
        CHECK(h.victim.ends.ends.empty());
    }
    h.its.store_consumer(cdc::pack(cdc::Cursor{0, 6}));
    h.its.ring_doorbell();
    CHECK(h.victim.ends.wait() == Reason::kCloseTimeout);
}

TEST_CASE("smcd_flow__a_full_ring_says_writer_blocked_and_goes_on_when_read") {
    Hostile h;
    const std::uint32_t size = kDmb - cdc::kSmcdBytes;
    const std::vector<char> data(size + 1000, 'x');
    REQUIRE(::send(h.victim.app.get(), data.data(), data.size(), 0) == static_cast<ssize_t>(data.size()));
    const auto published = [&](auto condition) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (!condition(cdc::unpack_producer(h.mine.load_producer()))) {
            REQUIRE(std::chrono::steady_clock::now() < end);
            std::this_thread::yield();
        }
    };
    published([](const cdc::Producer& p) { return (p.flags & cdc::kWriterBlocked) != 0; });
    CHECK(cdc::unpack_producer(h.mine.load_producer()).cursor == cdc::Cursor{1, 0});
    h.its.store_consumer(cdc::pack(cdc::Cursor{1, 0}));
    h.its.ring_doorbell();
    published([](const cdc::Producer& p) { return p.cursor == cdc::Cursor{1, 1000} && p.flags == 0; });
}

TEST_CASE("dmb__unsealed_or_short_memory_is_refused") {
    const UniqueFd plain(::memfd_create("x", MFD_ALLOW_SEALING));
    REQUIRE(::ftruncate(plain.get(), 1 << 20) == 0);
    CHECK_FALSE(ism::Dmb::attach(UniqueFd(::dup(plain.get())), UniqueFd(), kDmb));
    const auto dmb = ism::Dmb::create(kDmb);
    REQUIRE(dmb);
    CHECK_FALSE(ism::Dmb::attach(UniqueFd(::dup(dmb->memory_fd())), UniqueFd(), kDmb * 2));
    const auto doorbell = [&](int fd) {
        return static_cast<bool>(ism::Dmb::attach(UniqueFd(::dup(dmb->memory_fd())), UniqueFd(::dup(fd)), kDmb));
    };
    CHECK(doorbell(dmb->doorbell_fd()));
    CHECK_FALSE(doorbell(plain.get()));  // ringing anything but an eventfd might block
    CHECK_FALSE(doorbell(-1));
}
