// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// smcctl's subcommands. Each add_...() adds subcommands to the program, which leave their exit code in the Context.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>

namespace smc::ctl {

enum Exit { kDone = 0, kRefused = 1, kUsage = 2, kNoAgent = 3 };

// The options that all subcommands share, and the exit code that they leave.
struct Context {
    std::string socket;
    bool json = false;
    unsigned watch_s = 0;  // seconds after which the output is printed again; 0: it is printed once
    int exit = kDone;
};

// For a command that changes something, which --watch must not repeat.
inline Context once(Context context) {
    context.watch_s = 0;
    return context;
}

using Print = std::function<void(std::ostream&, const nlohmann::json&)>;
using Choose = std::function<nlohmann::json(nlohmann::json)>;
using Ask = std::function<std::optional<nlohmann::json>(Context&)>;

// Sends one request and prints the answer on standard output. `choose`: selects the part of the answer to print.
int show(const Context& context, const nlohmann::json& request, const Print& print, const Choose& choose = {});
// The same for an answer that takes several requests.
int show(const Context& context, const Ask& ask, const Print& print, const Choose& choose = {});
// Sends one request without printing the answer. nullopt, and the exit code is set: no agent answers, or it refuses.
std::optional<nlohmann::json> answer_of(Context& context, const nlohmann::json& request);

void add_views(CLI::App& app, Context& context);       // status, connections, linkgroup, device, ss, explain, ...
void add_bypass(CLI::App& app, Context& context);      // probe, bypass
void add_changes(CLI::App& app, Context& context);     // drain, upgrade, ueid, seid
void add_health(CLI::App& app, Context& context);      // health
void add_live(CLI::App& app, Context& context);        // events, top, capture
void add_decode(CLI::App& app, Context& context);      // decode
void add_completion(CLI::App& app, Context& context);  // completion

}  // namespace smc::ctl
