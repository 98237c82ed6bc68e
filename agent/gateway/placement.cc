// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/gateway/placement.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>

namespace smc {

namespace {

// An engine that is busier than kFull has no time left; one that is less busy than kFree has time for others'
// connections, and one below kQuiet for its own that were moved.
constexpr double kFull = 0.9, kFree = 0.5, kQuiet = 0.25;
// A connection that moves this much in a second is a stream.
constexpr std::uint64_t kStream = std::uint64_t{8} << 20;
// How often in a row an engine has to be full before connections that are no streams leave it, and lose their order.
constexpr unsigned kFullFor = 3;

std::size_t least(const std::vector<std::size_t>& counts) {
    return static_cast<std::size_t>(std::ranges::min_element(counts) - counts.begin());
}

}  // namespace

std::size_t Placement::add(std::uint64_t id, const Pair& pair, const std::vector<std::size_t>& tasks) {
    const auto [home, is_new] = homes_.try_emplace(pair);
    if (is_new) {
        home->second.engine = least(tasks);
    }
    home->second.connections++;
    const std::size_t engine = home->second.engine;
    connections_.insert_or_assign(id, Placed{pair, engine, engine});
    return engine;
}

void Placement::remove(std::uint64_t id) {
    const auto connection = connections_.find(id);
    if (connection == connections_.end()) {
        return;
    }
    const auto home = homes_.find(connection->second.pair);
    if (--home->second.connections == 0) {
        homes_.erase(home);
    }
    connections_.erase(connection);
}

std::vector<Placement::Move> Placement::balance(const std::vector<double>& busy,
                                                const std::function<std::uint64_t(std::uint64_t id)>& bytes) {
    for (auto& [id, connection] : connections_) {
        const std::uint64_t now = bytes(id);
        connection.moved = now - std::exchange(connection.bytes, now);
    }
    Moves moves;
    bring_home(busy, moves);
    for (std::size_t engine = 0; engine < full_for_.size(); engine++) {
        full_for_[engine] = busy[engine] > kFull ? full_for_[engine] + 1 : 0;
        if (full_for_[engine] == 0) {
            continue;
        }
        const std::size_t before = moves.size();
        spread_streams(engine, busy, moves);
        if (moves.size() == before && full_for_[engine] >= kFullFor) {
            halve(engine, busy, moves);
        }
    }
    return moves;
}

bool Placement::is_stream(const Placed& connection) {
    return connection.moved >= kStream;
}

void Placement::bring_home(const std::vector<double>& busy, Moves& moves) {
    for (const auto& [id, connection] : connections_) {
        if (connection.engine != connection.home && !is_stream(connection) && busy[connection.home] < kQuiet) {
            move(id, connection.home, moves);
        }
    }
}

// Streams go to the engine with the fewest of them, as long as that makes the numbers more equal. The only stream of an
// engine that has other active connections, too, goes to an engine that has none.
void Placement::spread_streams(std::size_t from, const std::vector<double>& busy, Moves& moves) {
    const std::vector<std::uint64_t> all = active(from);
    std::vector<std::size_t> count = streams();
    for (std::size_t engine = 0; engine < count.size(); engine++) {
        if (count[engine] == 0 && busy[engine] > kFull) {
            count[engine] = SIZE_MAX / 2;  // full of something else, such as links
        }
    }
    for (std::size_t left = all.size(); left > 1; left--) {
        const std::uint64_t id = all[all.size() - left];
        const std::size_t to = least(count);
        const bool evens = count[from] >= count[to] + 2;
        if (!is_stream(connections_.at(id)) || (!evens && !active(to).empty())) {
            return;
        }
        move(id, to, moves);
        count[from]--;
        count[to]++;
    }
}

// Every second active connection goes to the engine that is least busy, if that has time.
void Placement::halve(std::size_t from, const std::vector<double>& busy, Moves& moves) {
    const auto to = std::ranges::min_element(busy);
    if (*to >= kFree) {
        return;
    }
    const std::vector<std::uint64_t> all = active(from);
    for (std::size_t i = 1; i < all.size(); i += 2) {
        move(all[i], static_cast<std::size_t>(to - busy.begin()), moves);
    }
}

// The connections of an engine that have moved something lately, most bytes first.
std::vector<std::uint64_t> Placement::active(std::size_t engine) const {
    std::vector<std::uint64_t> ids;
    for (const auto& [id, connection] : connections_) {
        if (connection.engine == engine && connection.moved != 0) {
            ids.push_back(id);
        }
    }
    std::ranges::stable_sort(ids, std::greater<>(), [&](std::uint64_t id) { return connections_.at(id).moved; });
    return ids;
}

std::vector<std::size_t> Placement::streams() const {
    std::vector<std::size_t> count(full_for_.size());
    for (const auto& [id, connection] : connections_) {
        count[connection.engine] += is_stream(connection) ? 1 : 0;
    }
    return count;
}

void Placement::move(std::uint64_t id, std::size_t to, Moves& moves) {
    moves.push_back({id, std::exchange(connections_.at(id).engine, to), to});
}

}  // namespace smc
