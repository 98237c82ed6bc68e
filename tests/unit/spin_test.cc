// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// For how long a task is busy-polled before it sleeps, and when a thread may yield its processor.
#include "datapath/spin.h"

#include <catch2/catch.hpp>

#include "datapath/yield_cost.h"

using namespace smc;
using namespace std::chrono_literals;

namespace {

constexpr Spin::Time kMost = 200us;

// A task whose pauses are as long as the test says.
struct Sleeper {
    Spin spin;
    TimePoint now{1s};

    // Returns for how long the task was busy-polled, or would have been, had the pause been longer.
    Spin::Time pause(Spin::Time length, Spin::Time most = kMost) {
        const Spin::Time spins = spin.before_sleep(now, most);
        now += length;
        spin.woken(now);
        return spins;
    }
};

}  // namespace

TEST_CASE("spin__follows_short_pauses") {
    Sleeper sleeper;
    CHECK(sleeper.pause(60us) == 0us);  // nothing is known yet
    CHECK(sleeper.pause(60us) == 120us);
    CHECK(sleeper.pause(30us) == 120us);
    CHECK(sleeper.pause(5us) == 60us);
    CHECK(sleeper.pause(150us) == 20us);
    CHECK(sleeper.pause(200us) == kMost);
    CHECK(sleeper.pause(201us) == kMost);
    CHECK(sleeper.pause(60us) == 100us);  // one that was too long forbids nothing
}

TEST_CASE("spin__costs_nothing_where_pauses_are_long") {
    Sleeper sleeper;
    sleeper.pause(100us);
    Spin::Time in_vain{0};
    for (int i = 0; i < 1000; i++) {
        in_vain += sleeper.pause(10ms);
    }
    CHECK(in_vain <= 2 * kMost);
    CHECK(sleeper.pause(10ms) == 0us);
}

TEST_CASE("spin__costs_at_most_twice_the_short_pause_before_each_long_one") {
    Sleeper sleeper;
    for (int i = 0; i < 100; i++) {
        sleeper.pause(40us);
        CHECK(sleeper.pause(10ms) == 80us);
    }
}

TEST_CASE("spin__never_where_it_is_off") {
    Sleeper sleeper;
    for (int i = 0; i < 5; i++) {
        CHECK(sleeper.pause(10us, 0us) == 0us);
    }
}

TEST_CASE("yield_cost__forbids_for_a_while_what_takes_too_long_on_average") {
    const bool begins_anew = GENERATE(true, false);
    YieldCost cost({.too_long = 1ms, .longest = 4ms, .rest = 20ms, .begins_anew = begins_anew});
    TimePoint now{1s};
    cost.took(50ms, now);  // one call may be late
    CHECK(cost.allows(now));
    int calls = 1;
    while (cost.allows(now)) {
        cost.took(4ms, now);
        calls++;
    }
    CHECK(calls == 3);
    CHECK_FALSE(cost.allows(now + 20ms - 1us));
    now += 20ms;
    CHECK(cost.allows(now));
    cost.took(4ms, now);
    CHECK(cost.allows(now) == begins_anew);
    for (int i = 0; i < 100; i++) {
        cost.took(10us, now += 20ms);
    }
    CHECK(cost.allows(now));
    cost.took(4ms, now);
    CHECK(cost.allows(now));
}
