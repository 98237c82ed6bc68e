// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Runs the simulator: `smc-sim --runs 10000` for seeds 1 to 10,000, `smc-sim --faults 1000000` until so many mishaps
// have happened, `smc-sim --seed 4711` for one of them with its story, and with --shorten for the fewest mishaps that
// make it fail.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "scenario.h"

namespace {

using smc::sim::Choice;
using smc::sim::Report;

unsigned long long number(std::uint64_t n) {
    return n;
}

// Leaves out each mishap without which the run still fails, from the last to the first.
Choice shorten(Choice choice) {
    choice.tell = false;
    for (std::uint64_t i = smc::sim::run(choice).drawn; i > 0; i--) {
        Choice fewer = choice;
        fewer.spared.insert(i);
        if (!smc::sim::run(fewer).violation.empty()) {
            choice = std::move(fewer);
        }
    }
    choice.tell = true;
    return choice;
}

int tell_one(const Choice& choice) {
    const Report report = smc::sim::run(choice);
    std::printf("seed %llu: %s\n", number(choice.seed),
                report.violation.empty() ? "every invariant held" : report.violation.c_str());
    if (!choice.spared.empty()) {
        std::printf("without mishaps");
        for (const std::uint64_t one : choice.spared) {
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
    bool shortens = false, stormy = false;
    app.add_option("--seed", seed, "one run, with its story");
    app.add_option("--without", without, "mishaps of that run that do not happen, by their number in its story");
    app.add_flag("--shorten", shortens, "the same run with as few mishaps as make it fail");
    app.add_flag("--stormy", stormy, "streams over two links, of which one breaks, whatever the seed");
    app.add_option("--first", first, "the first seed")->capture_default_str();
    app.add_option("--runs", runs, "so many seeds")->capture_default_str();
    app.add_option("--faults", wanted, "as many seeds as bring about so many mishaps");
    app.add_option("--stop-at", stop_at, "after so many that fail")->capture_default_str();
    CLI11_PARSE(app, argc, argv);

    if (seed != 0) {
        const Choice choice{seed, stormy, true, without};
        return tell_one(shortens ? shorten(choice) : choice);
    }
    std::map<std::string, unsigned> paths;
    std::uint64_t done = 0, faulty = 0, events = 0, faults = 0, failed = 0;
    for (std::uint64_t i = first; (wanted != 0 ? faults < wanted : done < runs) && failed < stop_at; i++, done++) {
        const Report report = smc::sim::run({i, stormy});
        events += report.events;
        faults += report.faults;
        faulty += report.mishaps.empty() ? 0 : 1;
        for (const auto& [path, count] : report.paths) {
            paths[path] += count;
        }
        if (!report.violation.empty()) {
            failed++;
            std::printf("seed %llu: %s\n  what went wrong before: %s\n  its story: smc-sim%s --seed %llu --shorten\n",
                        number(i), report.violation.c_str(),
                        report.mishaps.empty() ? "nothing" : report.mishaps.c_str(), stormy ? " --stormy" : "",
                        number(i));
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
