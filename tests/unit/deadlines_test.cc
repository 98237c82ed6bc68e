// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Deadlines, compared with a plain list.
#include "datapath/deadlines.h"

#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>

using namespace smc;
using std::chrono::milliseconds;

TEST_CASE("deadlines__expire_in_time_whatever_was_set_anew_or_taken_away") {
    std::mt19937 random(7);
    Deadlines deadlines;
    std::map<std::uint64_t, TimePoint> model;
    TimePoint now{};
    for (int step = 0; step < 20'000; step++) {
        const std::uint64_t id = random() % 50;
        if (random() % 4 == 0) {
            deadlines.set(id, kNever);
            model.erase(id);
        } else {
            const TimePoint when = now + milliseconds(random() % 100);
            deadlines.set(id, when);
            model[id] = when;
        }
        TimePoint first = kNever;
        for (const auto& [known, when] : model) {
            first = std::min(first, when);
        }
        REQUIRE(deadlines.next() == first);
        REQUIRE(deadlines.size() == model.size());
        if (random() % 8 == 0) {
            now += milliseconds(random() % 30);
            std::set<std::uint64_t> expired, expected;
            deadlines.take_expired(now, [&](std::uint64_t due) { REQUIRE(expired.insert(due).second); });
            std::erase_if(
                model, [&](const auto& entry) { return entry.second <= now && expected.insert(entry.first).second; });
            REQUIRE(expired == expected);
        }
    }
}
