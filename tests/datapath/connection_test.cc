// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The connection cases over shared memory, and over a link without a device.
#define SMC_TRANSPORTS DmbPair, LinkPair, NarrowLinkPair
#include <poll.h>
#include <sys/epoll.h>

#include <cstring>

#include "connection_cases.h"

namespace {

// Watches nothing: the test looks at descriptors itself.
class Nobody final : public Poller {
 public:
    bool watch(int fd, std::uint32_t, Source&) override { return fd >= 0; }
    void unwatch(int) override {}
    void ready(Task&) override {}
};

// A transport to a peer that sends what the test puts into `state`.
class Unheard final : public Transport {
 public:
    explicit Unheard(std::vector<cdc::Producer>& published) : published_(published) {}
    bool start(Poller&, Poller::Source& source) override {
        if (link_is_down) {
            source.task->abort(Reason::kLinkDown);
        }
        return true;
    }
    void stop() override {}
    [[nodiscard]] std::uint32_t send_size() const override { return kRing; }
    [[nodiscard]] std::uint32_t window() const override { return kRing; }
    [[nodiscard]] std::span<std::uint8_t> receive_ring() const override { return own_; }
    [[nodiscard]] flow::PeerState peer() const override { return state; }
    [[nodiscard]] bool receive_ring_is_valid() const override { return !is_lost; }
    [[nodiscard]] bool is_valid() const override { return !is_lost; }
    [[nodiscard]] bool can_send() const override { return true; }
    void want_room() override {}
    [[nodiscard]] Pieces space(cdc::Cursor at, std::uint32_t bytes) const override {
        CHECK_FALSE(is_lost);
        return pieces(peers_, at.count, bytes);
    }
    void publish(const cdc::Producer& producer, std::uint32_t) override {
        published_.push_back(producer);
        if (is_lost_at_publish) {
            state.consumer = producer.cursor;  // so there seems to be room for more
            is_lost = true;
        }
    }
    void consumed(cdc::Cursor) override {}
    void flush() override {}

    flow::PeerState state;
    bool is_lost = false;
    bool is_lost_at_publish = false;
    bool link_is_down = false;

 private:
    std::vector<cdc::Producer>& published_;
    mutable std::array<std::uint8_t, kRing> own_{}, peers_{};
};

// A connection over that transport, which the test runs itself.
struct Alone {
    std::vector<cdc::Producer> published;
    SocketPair leg = tcp_pair(), clc = tcp_pair();
    const int clc_fd = clc.b.get();
    std::unique_ptr<Unheard> made = std::make_unique<Unheard>(published);
    Unheard& transport = *made;
    SmcConnection connection;
    Nobody poller;

    explicit Alone(std::chrono::milliseconds idle = {})
        : connection(1, std::make_shared<ConnectionStats>(), parts(idle)) {}
    SmcConnection::Parts parts(std::chrono::milliseconds idle) {
        SmcConnection::Parts parts{std::make_unique<SocketLeg>(of_agent(std::move(leg.b))),
                                   std::make_unique<SocketClc>(of_agent(std::move(clc.b)), std::chrono::seconds(77)),
                                   std::move(made)};
        if (idle.count() != 0) {
            parts.idle = idle;
        }
        return parts;
    }
};

bool is_readable(int fd) {
    pollfd wanted{fd, POLLIN, 0};
    return ::poll(&wanted, 1, 0) == 1;
}

}  // namespace

// Data of the peer is taken when the event of the doorbell has its turn, even if it can be seen before.
TEST_CASE("connection__takes_the_peers_news_when_it_hears_of_them") {
    DmbPair transports;
    Transport& peer = *transports.ends[0].transport;
    SocketPair leg = tcp_pair(), clc = tcp_pair();
    SmcConnection::Parts parts{std::make_unique<SocketLeg>(of_agent(std::move(leg.b))),
                               std::make_unique<SocketClc>(of_agent(std::move(clc.b))),
                               std::move(transports.ends[1].transport)};
    SmcConnection connection(1, std::make_shared<ConnectionStats>(), std::move(parts));
    Nobody poller;
    REQUIRE(connection.start(poller));
    CHECK_FALSE(connection.run({}));

    std::memset(peer.space({}, 1).part[0].iov_base, 'x', 1);
    peer.publish({{0, 1}, 0, 0}, 1);
    REQUIRE(::send(leg.a.get(), "y", 1, 0) == 1);
    connection.on_event(0, EPOLLIN);  // the leg's event
    CHECK_FALSE(connection.run({}));
    CHECK(peer.peer().producer.cursor.count == 1);
    CHECK_FALSE(is_readable(leg.a.get()));

    connection.on_event(2, EPOLLIN);  // the doorbell's event
    CHECK_FALSE(connection.run({}));
    CHECK(is_readable(leg.a.get()));
    connection.abort(Reason::kStopped);
}

TEST_CASE("connection__has_keepalive_when_it_lasts_although_nothing_moves") {
    Alone a;
    const auto option = [&](int level, int which) {
        int value = -1;
        socklen_t length = sizeof value;
        REQUIRE(::getsockopt(a.clc_fd, level, which, &value, &length) == 0);
        return value;
    };
    REQUIRE(a.connection.start(a.poller));
    (void)a.connection.run({});
    CHECK(option(SOL_SOCKET, SO_KEEPALIVE) == 0);
    const TimePoint due = a.connection.deadline();
    REQUIRE(due != kNever);
    (void)a.connection.run(due);
    CHECK(option(SOL_SOCKET, SO_KEEPALIVE) == 1);
    CHECK(option(IPPROTO_TCP, TCP_KEEPIDLE) == 77);
    CHECK(a.connection.deadline() == kNever);
    a.connection.abort(Reason::kStopped);
}

// The memory of a machine that stood still for long belongs to others (datapath/ivshmem/area.h, A5).
TEST_CASE("connection__delivers_nothing_from_a_ring_that_it_has_lost") {
    for (const bool lost : {false, true}) {
        Alone a;
        REQUIRE(a.connection.start(a.poller));
        (void)a.connection.run({});
        a.transport.state.producer.cursor = {0, 5};  // the peer's agent dies without a doorbell
        a.transport.is_lost = lost;
        a.connection.abort(Reason::kLinkDown);
        (void)a.connection.run({});
        char got[8];
        CHECK(::recv(a.leg.a.get(), got, sizeof got, 0) == (lost ? -1 : 5));
        a.connection.abort(Reason::kStopped);
    }
}

// The same while it runs: it stood still between two pieces.
TEST_CASE("connection__writes_nothing_into_a_ring_that_it_has_lost") {
    Alone a;
    REQUIRE(a.connection.start(a.poller));
    a.transport.is_lost_at_publish = true;
    const std::vector<char> data(std::size_t{3} * kRing, 'x');
    REQUIRE(::send(a.leg.a.get(), data.data(), data.size(), MSG_DONTWAIT) > static_cast<ssize_t>(kRing) / 2);
    a.connection.on_event(0, EPOLLIN);
    (void)a.connection.run({});
    (void)a.connection.run({});
    CHECK(a.published.size() >= 1);
    CHECK(a.connection.ended());
}

TEST_CASE("connection__delivers_what_came_before_it_started_although_its_link_has_gone_F8") {
    Alone a;
    a.transport.state.producer.cursor = {0, 5};
    a.transport.link_is_down = true;
    REQUIRE(a.connection.start(a.poller));
    (void)a.connection.run({});
    char got[8];
    CHECK(::recv(a.leg.a.get(), got, sizeof got, 0) == 5);
    while (!a.connection.ended()) {
        (void)a.connection.run({});
    }
    CHECK(receive_error(a.leg.a.get()) == ECONNRESET);
}

TEST_CASE("connection__asks_a_peer_that_consumes_nothing_how_far_it_is_later_and_later") {
    Alone a(std::chrono::seconds(2));
    SmcConnection& connection = a.connection;
    std::vector<cdc::Producer>& published = a.published;
    REQUIRE(connection.start(a.poller));
    REQUIRE(::send(a.leg.a.get(), "y", 1, 0) == 1);
    const TimePoint begun{};
    connection.on_event(0, EPOLLIN);
    (void)connection.run(begun);
    REQUIRE(published.size() == 1);

    std::vector<long> asked;  // seconds
    for (TimePoint now = begun; asked.size() < 6;) {
        now = connection.deadline();
        published.clear();
        while (connection.run(now)) {
        }
        if (!published.empty()) {
            CHECK((published.back().cursor.count == 1 && (published.back().flags & cdc::kCursorRequested) != 0));
            asked.push_back(std::chrono::duration_cast<std::chrono::seconds>(now - begun).count());
        }
    }
    CHECK(asked == std::vector<long>{4, 6, 10, 18, 34, 66});
    connection.abort(Reason::kStopped);
}
