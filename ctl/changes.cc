// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What changes the agent, until it ends: nothing here is written to its configuration.
#include <chrono>
#include <iostream>
#include <memory>
#include <thread>

#include "ctl/commands.h"
#include "ctl/print.h"

namespace smc::ctl {

using nlohmann::json;

namespace {

void add_drain(CLI::App& app, Context& context) {
    auto* drain = app.add_subcommand("drain", "New connections stay plain TCP; those that are there run on");
    const auto wait = std::make_shared<unsigned>(0);
    const auto end = std::make_shared<bool>(false);
    auto* waits = drain->add_option("--wait", *wait, "Until all have ended, for so many seconds at most");
    drain->add_flag("--end", *end, "Serve again")->excludes(waits);
    drain->callback([&context, wait, end] {
        auto answer = answer_of(context, {{"command", "drain"}, {"on", !*end}});
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(*wait);
        while (answer && (*answer)["connections"] != 0 && std::chrono::steady_clock::now() < until) {
            std::this_thread::sleep_for(std::chrono::milliseconds(200));
            answer = answer_of(context, {{"command", "drain"}, {"on", true}});
        }
        if (!answer) {
            return;
        }
        if (context.json) {
            std::cout << answer->dump(2) << "\n";
        } else {
            print_drain(std::cout, *answer);
        }
        if (*wait != 0 && (*answer)["connections"] != 0) {
            context.exit = kRefused;
        }
    });
}

}  // namespace

void add_changes(CLI::App& app, Context& context) {
    add_drain(app, context);
    auto* ueid = app.add_subcommand("ueid", "User-defined EIDs, as smcr ueid has them");
    const auto what = std::make_shared<std::string>("show");
    const auto eid = std::make_shared<std::string>();
    ueid->add_option("WHAT", *what, "show, add, del or flush")
        ->check(CLI::IsMember({"show", "add", "del", "flush"}))
        ->capture_default_str();
    ueid->add_option("EID", *eid, "To be added or deleted");
    ueid->callback([&context, what, eid] {
        if ((*what == "add" || *what == "del") == eid->empty()) {
            std::cerr << "Error: add and del want an EID, show and flush none\n";
            context.exit = kUsage;
            return;
        }
        context.exit = show(context, {{"command", "ueid"}, {"what", *what}, {"eid", *eid}}, print_ueids);
    });
    auto* seid = app.add_subcommand("seid", "The system EID, as smcd seid has it");
    const auto which = std::make_shared<std::string>("show");
    seid->add_option("WHAT", *which, "show, enable or disable")
        ->check(CLI::IsMember({"show", "enable", "disable"}))
        ->capture_default_str();
    seid->callback([&context, which] {
        context.exit = show(context, {{"command", "seid"}, {"what", *which}}, print_seid);
    });
}

}  // namespace smc::ctl
