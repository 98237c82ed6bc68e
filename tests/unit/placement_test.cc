// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/gateway/placement.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

using namespace smc;

namespace {

constexpr std::uint64_t kMuch = std::uint64_t{100} << 20, kLittle = 100'000;

Placement::Pair pair_of(std::uint8_t remote, std::uint64_t netns = 1) {
    return {netns, {remote}};
}

// A placement, and what its engines and connections do.
struct Scene {
    explicit Scene(std::size_t engines) : placement(engines), tasks(engines), busy(engines) {}

    std::size_t add(std::uint64_t id, const Placement::Pair& pair) {
        where[id] = placement.add(id, pair, tasks);
        tasks[where[id]]++;
        return where[id];
    }
    void add_many(std::uint64_t first, std::uint64_t last, const Placement::Pair& pair) {
        for (std::uint64_t id = first; id <= last; id++) {
            add(id, pair);
        }
    }
    // A second in which each of these connections moves `bytes`. Returns how many change their engine after it.
    std::size_t pass(std::uint64_t first, std::uint64_t last, std::uint64_t bytes) {
        for (std::uint64_t id = first; id <= last; id++) {
            moved[id] += bytes;
        }
        return pass();
    }
    std::size_t pass() {
        const auto moves = placement.balance(busy, [this](std::uint64_t id) { return moved[id]; });
        for (const auto& [id, from, to] : moves) {
            CHECK(where[id] == from);
            where[id] = to;
        }
        return moves.size();
    }
    [[nodiscard]] std::vector<long> numbers() const {
        std::vector<long> each(busy.size());
        for (const auto& [id, engine] : where) {
            each[engine]++;
        }
        return each;
    }

    Placement placement;
    std::vector<std::size_t> tasks;
    std::vector<double> busy;
    std::map<std::uint64_t, std::size_t> where;
    std::map<std::uint64_t, std::uint64_t> moved;
};

}  // namespace

TEST_CASE("placement__connections_of_a_pair_share_an_engine_and_other_pairs_take_others") {
    Scene s(3);
    s.add_many(1, 4, pair_of(1));
    s.add_many(5, 6, pair_of(2));
    s.add_many(7, 7, pair_of(1, 2));  // the same remote, seen from another namespace
    CHECK(s.numbers() == std::vector<long>{4, 2, 1});
    CHECK(s.add(8, pair_of(1)) == 0);
    CHECK(s.add(9, pair_of(3)) == 2);
}

TEST_CASE("placement__a_pair_without_connections_is_placed_anew") {
    Scene s(2);
    CHECK(s.add(1, pair_of(1)) == 0);
    CHECK(s.add(2, pair_of(1)) == 0);
    s.placement.remove(1);
    CHECK(s.add(3, pair_of(1)) == 0);
    s.placement.remove(2);
    s.placement.remove(3);
    s.placement.remove(3);  // twice, or never added: ignored
    CHECK(s.add(4, pair_of(1)) == 1);
}

TEST_CASE("placement__streams_are_spread_once_their_engine_has_no_time_left") {
    Scene s(2);
    s.add_many(1, 4, pair_of(1));
    s.busy = {0.8, 0};
    CHECK(s.pass(1, 4, kMuch) == 0);
    s.busy = {1, 0};
    CHECK(s.pass(1, 4, kMuch) == 2);
    CHECK(s.numbers() == std::vector<long>{2, 2});
    s.busy = {1, 1};
    CHECK(s.pass(1, 4, kMuch) == 0);
    s.add_many(5, 6, pair_of(1));  // they begin where their pair's connections do
    CHECK(s.numbers() == std::vector<long>{4, 2});
    CHECK(s.pass(1, 6, kMuch) == 1);
    CHECK(s.numbers() == std::vector<long>{3, 3});
}

TEST_CASE("placement__no_stream_goes_to_an_engine_that_is_full_of_something_else") {
    Scene s(2);
    s.add_many(1, 4, pair_of(1));
    s.busy = {1, 1};
    for (int second = 0; second < 5; second++) {
        CHECK(s.pass(1, 4, kMuch) == 0);
    }
}

TEST_CASE("placement__a_single_stream_leaves_messages_for_an_idle_engine_and_stays_where_it_is_alone") {
    Scene s(2);
    s.add(1, pair_of(1));
    s.busy = {1, 0};
    CHECK(s.pass(1, 1, kMuch) == 0);
    s.add(2, pair_of(1));
    s.moved[2] += kLittle;
    CHECK(s.pass(1, 1, kMuch) == 1);
    CHECK(s.where[1] == 1);
    CHECK(s.where[2] == 0);
    s.busy = {0.4, 1};
    s.moved[2] += kLittle;
    CHECK(s.pass(1, 1, kMuch) == 0);
    s.add(3, pair_of(2));  // messages of another pair come to the stream: both engines have some, so it stays
    s.where[3] = 1;
    s.moved[2] += kLittle;
    s.moved[3] += kLittle;
    CHECK(s.pass(1, 1, kMuch) == 0);
}

TEST_CASE("placement__a_stream_that_has_become_quiet_returns_when_there_is_time") {
    Scene s(2);
    s.add_many(1, 2, pair_of(1));
    s.busy = {1, 0};
    CHECK(s.pass(1, 2, kMuch) == 1);
    const std::uint64_t moved = s.where[1] == 1 ? 1 : 2;
    s.busy = {0.5, 0};
    CHECK(s.pass(1, 2, kLittle) == 0);
    s.busy = {0.1, 0};
    CHECK(s.pass(1, 2, kLittle) == 1);
    CHECK(s.where[moved] == 0);
    CHECK(s.pass(1, 2, kLittle) == 0);
}

TEST_CASE("placement__messages_keep_their_order_unless_an_engine_is_full_for_long") {
    Scene s(3);
    s.add_many(1, 8, pair_of(1));
    s.busy = {1, 0.6, 0.2};
    CHECK(s.pass(1, 8, kLittle) == 0);
    s.busy = {0.5, 0.6, 0.2};
    CHECK(s.pass(1, 8, kLittle) == 0);
    s.busy = {1, 0.6, 0.2};
    CHECK(s.pass(1, 8, kLittle) == 0);
    CHECK(s.pass(1, 8, kLittle) == 0);
    CHECK(s.pass(1, 8, kLittle) == 4);
    CHECK(s.numbers() == std::vector<long>{4, 0, 4});
    s.busy = {1, 0.6, 0.6};  // nobody has time: nothing moves
    CHECK(s.pass(1, 8, kLittle) == 0);
    CHECK(s.pass(1, 8, kLittle) == 0);
}

TEST_CASE("placement__connections_that_move_nothing_stay") {
    Scene s(2);
    s.add_many(1, 3, pair_of(1));
    s.busy = {1, 0};
    for (int second = 0; second < 5; second++) {
        CHECK(s.pass(1, 1, kMuch) == 0);  // the only active one: nothing would be gained
    }
}
