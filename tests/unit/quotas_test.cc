// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How many connections one namespace and one cgroup may have, also after the total has changed.
#include "agent/connections/quotas.h"

#include <catch2/catch.hpp>
#include <vector>

using namespace smc;

TEST_CASE("quotas__a_namespace_has_its_share_of_the_total") {
    std::vector<std::uint64_t> told;
    Quotas quotas(
        {8, 50, 100}, [&](std::uint64_t netns) { told.push_back(netns); }, [](std::uint64_t) {});
    for (int n = 0; n < 4; n++) {
        CHECK(quotas.has_for(1, 7));
        quotas.take(1, 7);
    }
    CHECK_FALSE(quotas.has_for(1, 7));
    CHECK(quotas.has_for(2, 7));
    CHECK(told == std::vector<std::uint64_t>{1});
    quotas.give_back(1, 7);
    CHECK(quotas.has_for(1, 7));
    CHECK(told == std::vector<std::uint64_t>{1, 1});
}

TEST_CASE("quotas__shares_follow_the_total") {
    std::vector<std::uint64_t> told;
    Quotas quotas(
        {8, 50, 100}, [&](std::uint64_t netns) { told.push_back(netns); }, [](std::uint64_t) {});
    for (int n = 0; n < 4; n++) {
        quotas.take(1, 7);
    }
    quotas.take(2, 7);
    told.clear();
    quotas.set_total(20);
    CHECK(quotas.has_for_netns(1));
    CHECK(told == std::vector<std::uint64_t>{1});  // 2 had a free place before, too
    quotas.set_total(2);
    CHECK_FALSE(quotas.has_for_netns(1));
    CHECK_FALSE(quotas.has_for_netns(2));
    CHECK_FALSE(quotas.has_any());
    for (int n = 0; n < 3; n++) {
        quotas.give_back(1, 7);
        CHECK_FALSE(quotas.has_for_netns(1));
    }
    quotas.give_back(1, 7);
    CHECK(quotas.has_for_netns(1));
}
