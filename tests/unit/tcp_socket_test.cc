// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/tcp_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>

using namespace smc;
using namespace std::chrono_literals;

namespace {

constexpr int kNamespaces = 7;  // stands for tcp_keepalive_time

int idle_of(const TcpSocket& socket) {
    int idle = 0;
    socklen_t length = sizeof idle;
    REQUIRE(::getsockopt(socket.fd(), IPPROTO_TCP, TCP_KEEPIDLE, &idle, &length) == 0);
    return idle;
}

}  // namespace

TEST_CASE("tcp_socket__an_application_that_sets_no_idle_time_has_that_of_its_namespace") {
    const auto [own, chosen, expected] = GENERATE(table<std::chrono::seconds, unsigned, int>(
        {{600s, 0, kNamespaces}, {0s, 0, kNamespaces}, {3s, 0, 3}, {600s, 9, 9}, {5s, 9, 5}}));
    CAPTURE(own.count(), chosen);
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::setsockopt(fd.get(), IPPROTO_TCP, TCP_KEEPIDLE, &kNamespaces, sizeof kNamespaces) == 0);
    TcpSocket socket(std::move(fd));
    socket.keep_alive(own);
    CHECK(idle_of(socket) == (own == 0s ? kNamespaces : static_cast<int>(own.count())));
    socket.use_keepalive_of_another({true, chosen, 0, 0, 0}, false);
    CHECK(idle_of(socket) == expected);
}
