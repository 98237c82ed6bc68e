// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// When a connection is busy-polled before it sleeps.
#include "datapath/spin.h"

#include <catch2/catch.hpp>

using namespace smc;
using namespace std::chrono_literals;

namespace {

constexpr Spin::Time kMost = 50us;

// A sequence of pauses.
struct Pauses {
    Spin spin;
    TimePoint now{1s};

    // Returns how long it busy-polls before it sleeps; an event comes `later`.
    Spin::Time pause(std::chrono::microseconds later) {
        const Spin::Time looks = spin.before_sleep(now, kMost);
        if (looks.count() > 0 && later > looks) {
            spin.over();
        }
        now += later;
        spin.woken(now);
        return looks;
    }
};

}  // namespace

TEST_CASE("spin__only_behind_a_pause_that_was_short") {
    Pauses p;
    CHECK(p.pause(30us) == 0us);  // no pause was measured yet
    CHECK(p.pause(30us) == kMost);
    CHECK(p.pause(1ms) == kMost);
    for (int i = 0; i < 10; i++) {
        CHECK(p.pause(1ms) == 0us);  // sparse traffic is never busy-polled
    }
    CHECK(p.pause(150us) == 0us);  // without its wake-up, this pause may be shorter than kMost
    CHECK(p.pause(30us) == kMost);
}

TEST_CASE("spin__in_vain_less_and_less_often") {
    Pauses p;
    (void)p.pause(150us);
    const auto looks_of = [&](int pauses) {
        int looks = 0;
        for (int i = 0; i < pauses; i++) {
            looks += p.pause(150us) != 0us ? 1 : 0;
        }
        return looks;
    };
    CHECK(looks_of(4) == 4);
    CHECK(looks_of(16) == 0);
    CHECK(looks_of(4) == 4);
    CHECK(looks_of(32) == 0);
    CHECK(looks_of(100'000) < 1000);
    // As soon as busy-polling pays again, it is used as before.
    while (p.pause(20us) == 0us) {
    }
    CHECK(looks_of(4) == 4);
    CHECK(looks_of(16) == 0);
    CHECK(looks_of(1) == 1);
}

TEST_CASE("spin__never_where_it_is_off") {
    Spin spin;
    TimePoint now{1s};
    for (int i = 0; i < 10; i++) {
        CHECK(spin.before_sleep(now, 0us) == 0us);
        now += 10us;
        spin.woken(now);
    }
}
