// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The connection cases over shared memory and over a link that is no device.
#define SMC_TRANSPORTS DmbPair, LinkPair, NarrowLinkPair
#include <poll.h>
#include <sys/epoll.h>

#include <cstring>

#include "connection_cases.h"

namespace {

// Descriptors are looked at by the test alone.
class Nobody final : public Poller {
 public:
    bool watch(int, std::uint32_t, Source&) override { return true; }
    void unwatch(int) override {}
    void ready(Task&) override {}
};

bool is_readable(int fd) {
    pollfd wanted{fd, POLLIN, 0};
    return ::poll(&wanted, 1, 0) == 1;
}

}  // namespace

// What it can see already has its place among the news of others: that of its doorbell.
TEST_CASE("connection__takes_the_peers_news_when_it_hears_of_them") {
    DmbPair transports;
    Transport& peer = *transports.ends[0].transport;
    SocketPair leg = tcp_pair(), clc = tcp_pair();
    SmcConnection::Parts parts{std::make_unique<SocketLeg>(TcpSocket(std::move(leg.b))),
                               std::make_unique<SocketClc>(TcpSocket(std::move(clc.b))),
                               std::move(transports.ends[1].transport)};
    SmcConnection connection(1, std::make_shared<ConnectionStats>(), std::move(parts));
    Nobody poller;
    REQUIRE(connection.start(poller));
    CHECK_FALSE(connection.run({}));

    std::memset(peer.space({}, 1).part[0].iov_base, 'x', 1);
    peer.publish({{0, 1}, 0, 0}, 1);
    REQUIRE(::send(leg.a.get(), "y", 1, 0) == 1);
    connection.on_event(0, EPOLLIN);  // its leg's
    CHECK_FALSE(connection.run({}));
    CHECK(peer.peer().producer.cursor.count == 1);
    CHECK_FALSE(is_readable(leg.a.get()));

    connection.on_event(2, EPOLLIN);  // its doorbell's
    CHECK_FALSE(connection.run({}));
    CHECK(is_readable(leg.a.get()));
    connection.abort(Reason::kStopped);
}
