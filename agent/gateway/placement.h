// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Decides which engine drives a connection. Connections of one network namespace with one remote address begin in the
// same engine, which runs them in the order of their events: bytes that a program sends first can be read first, even
// on another connection. If an engine has no idle time, connections move to other engines, streams first: these wait in
// a queue, so they have no such order. Connections return when their engine has idle time again.
//
// No I/O, no clock; engines are numbers from 0 up. Control thread only.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

namespace smc {

class Placement {
 public:
    explicit Placement(std::size_t engines) : full_for_(engines) {}

    struct Pair {
        std::uint64_t netns = 0;                // inode
        std::array<std::uint8_t, 16> remote{};  // address, in network byte order
        auto operator<=>(const Pair&) const = default;
    };
    // The engine of a new connection. `tasks`: how many each engine has.
    std::size_t add(std::uint64_t id, const Pair& pair, const std::vector<std::size_t>& tasks);
    // Ignores a connection that was not added.
    void remove(std::uint64_t id);

    struct Move {
        std::uint64_t id = 0;
        std::size_t from = 0, to = 0;
    };
    // To be called once a second. `busy`: for each engine, the share of the time since the last call in which it had
    // work and a processor, from 0 to 1. `bytes`: all bytes that a connection has moved so far. Assumes that all
    // returned moves are made.
    std::vector<Move> balance(const std::vector<double>& busy,
                              const std::function<std::uint64_t(std::uint64_t id)>& bytes);

 private:
    struct Placed {
        Pair pair;
        std::size_t home = 0, engine = 0;    // where its pair's connections begin; where it is
        std::uint64_t bytes = 0, moved = 0;  // all bytes, and those since the call of balance() before the last one
    };
    struct Home {
        std::size_t engine = 0, connections = 0;
    };
    using Moves = std::vector<Move>;

    static bool is_stream(const Placed& connection);
    void bring_home(const std::vector<double>& busy, Moves& moves);
    void spread_streams(std::size_t from, const std::vector<double>& busy, Moves& moves);
    void halve(std::size_t from, const std::vector<double>& busy, Moves& moves);
    [[nodiscard]] std::vector<std::uint64_t> active(std::size_t engine) const;
    [[nodiscard]] std::vector<std::size_t> streams() const;
    void move(std::uint64_t id, std::size_t to, Moves& moves);

    std::map<std::uint64_t, Placed> connections_;  // by ID
    std::map<Pair, Home> homes_;                   // pairs that have connections
    std::vector<unsigned> full_for_;               // by engine: calls of balance() in a row that found it without time
};

}  // namespace smc
