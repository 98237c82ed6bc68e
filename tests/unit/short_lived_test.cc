// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// When a connection has earned the set-up of SMC, and which connections are of one kind.
#include "agent/gateway/short_lived.h"

#include <catch2/catch.hpp>
#include <cstring>

using namespace smc;
using namespace std::chrono_literals;

TEST_CASE("short_lived__a_connection_earns_its_set_up_by_time_or_bytes_or_messages") {
    const auto lived = [](std::chrono::milliseconds time, std::uint64_t sent, std::uint64_t received,
                          std::uint64_t messages) {
        Connection c;
        c.stats->bytes_sent = sent;
        c.stats->bytes_received = received;
        c.stats->signals = messages;
        return is_short_lived(c, c.began + time);
    };
    CHECK(lived(0ms, 0, 0, 0));
    CHECK(lived(99ms, 1 << 19, (1 << 19) - 1, 63));
    CHECK_FALSE(lived(100ms, 0, 0, 0));
    CHECK_FALSE(lived(0ms, 1 << 20, 0, 0));
    CHECK_FALSE(lived(0ms, 1 << 19, 1 << 19, 0));
    CHECK_FALSE(lived(0ms, 0, 1 << 20, 0));
    CHECK_FALSE(lived(0ms, 0, 0, 64));
}

TEST_CASE("short_lived__clients_of_a_listener_are_of_one_kind_and_servers_are_not") {
    const auto kind = [](Role role, const char* server, const char* client, std::uint64_t cgroup) {
        Connection c;
        c.role = role;
        c.server = *Endpoint::parse(server);
        c.client = *Endpoint::parse(client);
        c.cgroup = cgroup;
        return kind_of(c, 5);
    };
    const auto same = [](const smc_short_key& one, const smc_short_key& other) {
        return std::memcmp(&one, &other, sizeof one) == 0;
    };
    const auto out = kind(Role::kClient, "10.0.0.1:80", "10.0.0.2:5000", 7);
    CHECK(out.netns == 5);
    CHECK(out.direction == SMC_OUTBOUND);
    CHECK(same(out, kind(Role::kClient, "10.0.0.1:80", "10.0.0.2:5001", 7)));
    CHECK_FALSE(same(out, kind(Role::kClient, "10.0.0.1:81", "10.0.0.2:5000", 7)));
    CHECK_FALSE(same(out, kind(Role::kClient, "10.0.0.3:80", "10.0.0.2:5000", 7)));
    CHECK_FALSE(same(out, kind(Role::kClient, "10.0.0.1:80", "10.0.0.2:5000", 8)));
    const auto in = kind(Role::kServer, "10.0.0.1:80", "10.0.0.2:5000", 7);
    CHECK(in.direction == SMC_INBOUND);
    CHECK(same(in, kind(Role::kServer, "10.0.0.9:80", "10.0.0.3:5000", 7)));
    CHECK_FALSE(same(in, kind(Role::kServer, "10.0.0.1:81", "10.0.0.2:5000", 7)));
    CHECK_FALSE(same(in, kind(Role::kServer, "10.0.0.1:80", "10.0.0.2:5000", 8)));
}
