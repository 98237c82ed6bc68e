// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Runs the simulator: `smc-sim --runs 10000` for seeds 1 to 10,000, `smc-sim --seed 4711` for one of them with its
// story.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "scenario.h"

int main(int argc, char** argv) {
    CLI::App app("Complete SMC peers in simulated time. A run follows from its seed alone.");
    std::uint64_t seed = 0, first = 1, runs = 1000, stop_at = 10;
    app.add_option("--seed", seed, "one run, with its story");
    app.add_option("--first", first, "the first seed")->capture_default_str();
    app.add_option("--runs", runs, "so many seeds")->capture_default_str();
    app.add_option("--stop-at", stop_at, "after so many that fail")->capture_default_str();
    CLI11_PARSE(app, argc, argv);

    if (seed != 0) {
        const auto report = smc::sim::run(seed, true);
        std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed),
                    report.violation.empty() ? "every invariant held" : report.violation.c_str());
        return report.violation.empty() ? 0 : 1;
    }
    std::map<std::string, unsigned> paths;
    unsigned faulty = 0;
    std::uint64_t events = 0, failed = 0;
    for (std::uint64_t i = first; i < first + runs; i++) {
        const auto report = smc::sim::run(i, false);
        events += report.events;
        faulty += report.mishaps.empty() ? 0 : 1;
        for (const auto& [path, count] : report.paths) {
            paths[path] += count;
        }
        if (!report.violation.empty()) {
            std::printf("seed %llu: %s\n  what went wrong before: %s\n  its story: smc-sim --seed %llu\n",
                        static_cast<unsigned long long>(i), report.violation.c_str(),
                        report.mishaps.empty() ? "nothing" : report.mishaps.c_str(),
                        static_cast<unsigned long long>(i));
            if (++failed == stop_at) {
                break;
            }
        }
    }
    std::printf("%llu runs, %u of them with mishaps, %llu events; connections:", static_cast<unsigned long long>(runs),
                faulty, static_cast<unsigned long long>(events));
    for (const auto& [path, count] : paths) {
        std::printf(" %s %u", path.c_str(), count);
    }
    std::printf("\n%s\n", failed == 0 ? "every invariant held" : "FAILED");
    return failed == 0 ? 0 : 1;
}
