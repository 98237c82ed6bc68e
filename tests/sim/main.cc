// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Runs the simulator: `smc-sim --runs 10000` for seeds 1 to 10,000, `smc-sim --faults 1000000` until so many mishaps
// have happened, `smc-sim --seed 4711` for one of them with its story, and with --shorten for the fewest mishaps that
// make it fail.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "scenario.h"

namespace {

using smc::sim::Report;

unsigned long long number(std::uint64_t n) {
    return n;
}

// Leaves out one mishap after the other, from the last to the first, as long as it fails.
std::set<std::uint64_t> shorten(std::uint64_t seed) {
    std::set<std::uint64_t> spared;
    for (std::uint64_t i = smc::sim::run(seed, false).drawn; i > 0; i--) {
        auto fewer = spared;
        fewer.insert(i);
        if (!smc::sim::run(seed, false, fewer).violation.empty()) {
            spared = std::move(fewer);
        }
    }
    return spared;
}

int tell_one(std::uint64_t seed, const std::set<std::uint64_t>& spared) {
    const Report report = smc::sim::run(seed, true, spared);
    std::printf("seed %llu: %s\n", number(seed),
                report.violation.empty() ? "every invariant held" : report.violation.c_str());
    if (!spared.empty()) {
        std::printf("without mishaps");
        for (const std::uint64_t one : spared) {
            std::printf(" %llu", number(one));
        }
        std::printf("; left are: %s\n", report.mishaps.c_str());
    }
    return report.violation.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("Complete SMC peers in simulated time. A run follows from its seed alone.");
    std::uint64_t seed = 0, first = 1, runs = 1000, stop_at = 10, wanted = 0;
    std::set<std::uint64_t> without;
    bool shortens = false;
    app.add_option("--seed", seed, "one run, with its story");
    app.add_option("--without", without, "mishaps of that run that do not happen, by their number in its story");
    app.add_flag("--shorten", shortens, "the same run with as few mishaps as make it fail");
    app.add_option("--first", first, "the first seed")->capture_default_str();
    app.add_option("--runs", runs, "so many seeds")->capture_default_str();
    app.add_option("--faults", wanted, "as many seeds as bring about so many mishaps");
    app.add_option("--stop-at", stop_at, "after so many that fail")->capture_default_str();
    CLI11_PARSE(app, argc, argv);

    if (seed != 0) {
        return tell_one(seed, shortens ? shorten(seed) : without);
    }
    std::map<std::string, unsigned> paths;
    std::uint64_t done = 0, faulty = 0, events = 0, faults = 0, failed = 0;
    for (std::uint64_t i = first; (wanted != 0 ? faults < wanted : done < runs) && failed < stop_at; i++, done++) {
        const Report report = smc::sim::run(i, false);
        events += report.events;
        faults += report.faults;
        faulty += report.mishaps.empty() ? 0 : 1;
        for (const auto& [path, count] : report.paths) {
            paths[path] += count;
        }
        if (!report.violation.empty()) {
            failed++;
            std::printf("seed %llu: %s\n  what went wrong before: %s\n  its story: smc-sim --seed %llu --shorten\n",
                        number(i), report.violation.c_str(),
                        report.mishaps.empty() ? "nothing" : report.mishaps.c_str(), number(i));
            std::fflush(stdout);
        }
    }
    std::printf("%llu runs, %llu of them with mishaps, %llu mishaps, %llu events; connections:", number(done),
                number(faulty), number(faults), number(events));
    for (const auto& [path, count] : paths) {
        std::printf(" %s %u", path.c_str(), count);
    }
    std::printf("\n%s\n", failed == 0 ? "every invariant held" : "FAILED");
    return failed == 0 ? 0 : 1;
}
