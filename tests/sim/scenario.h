// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One run: two complete peers, connections between them, and what goes wrong, all drawn from a seed.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace smc::sim {

struct Report {
    std::string violation;                  // empty: every invariant held
    std::map<std::string, unsigned> paths;  // how the clients' connections ran
    std::string mishaps;                    // that happened
    std::uint64_t events = 0;
    std::uint64_t faults = 0, drawn = 0;  // mishaps that happened; with those that were spared
};

struct Choice {
    std::uint64_t seed = 0;
    bool stormy = false;               // two links, of which one breaks under load; if false, a few seeds are stormy
    bool tell = false;                 // print the story
    std::set<std::uint64_t> spared{};  // mishaps that do not happen after all, by their number
};
Report run(const Choice& choice);

}  // namespace smc::sim
