// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// smcctl's subcommands, by what they are about. Each adds its own to the program and leaves its exit code behind.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>

namespace smc::ctl {

enum Exit { kDone = 0, kRefused = 1, kUsage = 2, kNoAgent = 3 };

// What all have in common.
struct Context {
    std::string socket;
    bool json = false;
    unsigned watch_s = 0;  // print it again and again; 0: once
    int exit = kDone;
};

using Print = std::function<void(std::ostream&, const nlohmann::json&)>;
using Choose = std::function<nlohmann::json(nlohmann::json)>;
using Ask = std::function<std::optional<nlohmann::json>(Context&)>;

// One question, and its answer on standard output. `choose`: what of it is wanted.
int show(const Context& context, const nlohmann::json& request, const Print& print, const Choose& choose = {});
// The same of an answer that takes several questions.
int show(const Context& context, const Ask& ask, const Print& print, const Choose& choose = {});
// The same without printing: nothing, and the exit code, if there was no answer.
std::optional<nlohmann::json> answer_of(Context& context, const nlohmann::json& request);

void add_views(CLI::App& app, Context& context);       // status, connections, linkgroup, device, ss, explain, ...
void add_bypass(CLI::App& app, Context& context);      // probe, bypass
void add_changes(CLI::App& app, Context& context);     // drain, upgrade, ueid, seid
void add_health(CLI::App& app, Context& context);      // health
void add_live(CLI::App& app, Context& context);        // events, top, capture
void add_decode(CLI::App& app, Context& context);      // decode
void add_completion(CLI::App& app, Context& context);  // completion

}  // namespace smc::ctl
