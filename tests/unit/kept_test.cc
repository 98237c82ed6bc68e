// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/web/kept.h"

#include <catch2/catch.hpp>

using namespace smc;

namespace {

struct Clock {
    using duration = std::chrono::milliseconds;
    using time_point = std::chrono::time_point<Clock, duration>;
    static time_point now() { return time; }
    static inline time_point time{duration(1000)};
};

}  // namespace

TEST_CASE("kept__is_made_again_only_when_four_times_its_making_has_passed") {
    Kept<std::string, Clock> kept;
    int made = 0;
    const auto ask = [&] {
        return kept.get([&] {
            Clock::time += Clock::duration(10);
            return std::to_string(++made);
        });
    };
    CHECK(ask() == "1");
    for (int i = 0; i < 40; i++, Clock::time += Clock::duration(1)) {
        CHECK(ask() == "1");
    }
    CHECK(ask() == "2");
    CHECK(ask() == "2");
}
