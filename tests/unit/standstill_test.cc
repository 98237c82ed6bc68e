// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The data path counts as standing still only after several checks, of which none was late itself.
#include "agent/loop/standstill.h"

#include <catch2/catch.hpp>

using namespace smc;
using namespace std::chrono_literals;

namespace {

const TimePoint kStart = TimePoint() + 1h;

}  // namespace

TEST_CASE("standstill__wants_as_many_looks_as_fit_into_the_time") {
    loop::Standstill data_path(250ms, 750ms);
    TimePoint now = kStart;
    CHECK_FALSE(data_path.look(true, now));
    for (int n = 0; n < 2; n++) {
        CHECK_FALSE(data_path.look(false, now += 250ms));
        CHECK_FALSE(data_path.stands_still());
    }
    CHECK(data_path.look(false, now += 250ms));
    CHECK(data_path.stands_still());
    CHECK_FALSE(data_path.look(false, now += 250ms));
    CHECK(data_path.look(true, now += 250ms));
    CHECK_FALSE(data_path.stands_still());
}

TEST_CASE("standstill__a_look_that_is_late_counts_as_one") {
    loop::Standstill data_path(250ms, 750ms);
    data_path.look(true, kStart);
    CHECK_FALSE(data_path.look(false, kStart + 1min));
    CHECK_FALSE(data_path.stands_still());
    CHECK_FALSE(data_path.look(false, kStart + 2min));
    CHECK(data_path.look(false, kStart + 3min));
}

TEST_CASE("standstill__hangs_after_ten_seconds_and_not_before") {
    loop::Standstill data_path(1s, 2s);
    TimePoint now = kStart;
    data_path.look(true, now);
    for (int n = 0; n < 9; n++) {
        data_path.look(false, now += 1s);
        CHECK_FALSE(data_path.hangs());
    }
    data_path.look(false, now += 1s);
    CHECK(data_path.hangs());
    data_path.look(true, now += 1s);
    CHECK_FALSE(data_path.hangs());
}

TEST_CASE("standstill__the_first_look_says_nothing") {
    loop::Standstill data_path(250ms, 250ms);
    CHECK_FALSE(data_path.look(false, kStart));
    CHECK_FALSE(data_path.stands_still());
}

TEST_CASE("every__is_due_once_in_each_period") {
    loop::Every second(1s);
    CHECK(second.due(kStart));
    CHECK_FALSE(second.due(kStart + 999ms));
    CHECK(second.due(kStart + 1s));
    CHECK(second.due(kStart + 1h));  // missed checks are not made up for
    CHECK_FALSE(second.due(kStart + 1h + 1ms));
}
