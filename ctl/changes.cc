// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Commands that change the running agent. Nothing is written to its configuration: the changes end with the agent.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <iostream>
#include <memory>
#include <thread>

#include "ctl/client.h"
#include "ctl/commands.h"
#include "ctl/print.h"

namespace smc::ctl {

using nlohmann::json;

namespace {

// Waits until no connection is left, but not beyond `until`. nullopt, and the exit code is set: the drain was ended
// meanwhile, or no agent answers.
std::optional<json> wait_for_drain(Context& context, json answer, std::chrono::steady_clock::time_point until) {
    const json pid = answer.value("pid", json());
    while (answer.at("connections") != 0 && std::chrono::steady_clock::now() < until) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        auto now = answer_of(context, {{"command", "drain"}, {"on", nullptr}});
        if (!now) {
            return std::nullopt;
        }
        answer = std::move(*now);
        if (!answer.at("draining").get<bool>() || answer.value("pid", json()) != pid) {
            const bool same = answer.value("pid", json()) == pid;
            std::cerr << "Error: " << (same ? "the agent serves again" : "another agent has taken over")
                      << ": this command waits no longer\n";
            context.exit = kRefused;
            return std::nullopt;
        }
    }
    return answer;
}

void add_drain(CLI::App& app, Context& context) {
    auto* drain = app.add_subcommand("drain", "New connections stay plain TCP; existing ones continue");
    const auto wait = std::make_shared<unsigned>(0);
    const auto end = std::make_shared<bool>(false);
    auto* waits =
        drain->add_option("--wait", *wait, "Wait until all connections have ended, at most this many seconds");
    drain->add_flag("--end", *end, "Serve again")->excludes(waits);
    drain->callback([&context, wait, end] {
        auto answer = answer_of(context, {{"command", "drain"}, {"on", !*end}});
        if (answer && *wait != 0) {
            const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(*wait);
            answer = wait_for_drain(context, std::move(*answer), until);
        }
        if (!answer) {
            return;
        }
        if (context.json) {
            std::cout << answer->dump(2) << "\n";
        } else {
            print_drain(std::cout, *answer);
        }
        if (*wait != 0 && answer->at("connections") != 0) {
            context.exit = kRefused;
        }
    });
}

constexpr auto kUpgrade = std::chrono::seconds(60);
const json kStatus = {{"command", "status"}, {"connections", false}};

// The connections that a leaving agent still has. nullopt: the agent has gone.
std::optional<json> left_at(const std::string& socket) {
    const auto answer = ask(socket, {{"command", "connections"}});
    if (!answer || !answer->contains("connections")) {
        return std::nullopt;
    }
    const json& all = answer->at("connections");
    json agent = {{"socket", socket}, {"connections", all.size()}};
    for (const char* path : {"smcd", "smcr", "fallback"}) {
        agent[path] = std::ranges::count_if(all, [&](const json& one) { return one.at("path") == path; });
    }
    return agent;
}

// Starts the upgrade and waits until the new agent serves. "error": why it does not.
json upgrade(const std::string& socket) {
    const auto began = std::chrono::steady_clock::now();
    const auto before = ask(socket, kStatus);
    const auto started = before ? ask(socket, {{"command", "upgrade"}}) : before;
    if (!started) {
        return {{"error", "no agent answers: " + started.error().text()}, {"absent", true}};
    }
    if (!started->contains("pid")) {
        return {{"error", started->value("error", "this agent does not know the command upgrade")}};
    }
    while (std::chrono::steady_clock::now() - began < kUpgrade) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        const auto now = ask(socket, kStatus);
        if (now && now->contains("agent") && now->at("agent").at("pid") == started->at("pid")) {
            const auto took = std::chrono::steady_clock::now() - began;
            json answer = {{"version", now->at("agent").at("version")},
                           {"pid", started->at("pid")},
                           {"before", before->at("agent").at("pid")},
                           {"took_ms", std::chrono::duration_cast<std::chrono::milliseconds>(took).count()},
                           {"leaving", json::array()}};
            for (const auto& leaving : now->at("agent").at("leaving")) {
                if (auto left = left_at(leaving)) {
                    answer["leaving"].push_back(std::move(*left));
                }
            }
            return answer;
        }
        if (::kill(started->at("pid"), 0) != 0 && errno == ESRCH) {
            const bool serves =
                now && now->contains("agent") && now->at("agent").at("pid") == before->at("agent").at("pid");
            return {{"error", std::string("the agent that was started has ended: its log says why. ") +
                                  (serves ? "This one goes on" : "Another one is started")}};
        }
    }
    return {{"error", "the agent that was started does not serve after a minute: its log says why"}};
}

void add_upgrade(CLI::App& app, Context& context) {
    auto* command = app.add_subcommand(
        "upgrade",
        "Start the installed program in place of this agent, which keeps its connections for upgrade.drain_s");
    command->callback([&context] {
        const json done = upgrade(context.socket);
        if (done.contains("error")) {
            std::cerr << "Error: " << done.at("error").get<std::string>() << "\n";
            context.exit = done.contains("absent") ? kNoAgent : kRefused;
        } else if (context.json) {
            std::cout << done.dump(2) << "\n";
        } else {
            print_upgrade(std::cout, done);
        }
    });
}

}  // namespace

void add_changes(CLI::App& app, Context& context) {
    add_drain(app, context);
    add_upgrade(app, context);
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
        context.exit = show(*what == "show" ? context : once(context),
                            {{"command", "ueid"}, {"what", *what}, {"eid", *eid}}, print_ueids);
    });
    auto* seid = app.add_subcommand("seid", "The system EID, as smcd seid has it");
    const auto which = std::make_shared<std::string>("show");
    seid->add_option("WHAT", *which, "show, enable or disable")
        ->check(CLI::IsMember({"show", "enable", "disable"}))
        ->capture_default_str();
    seid->callback([&context, which] {
        context.exit =
            show(*which == "show" ? context : once(context), {{"command", "seid"}, {"what", *which}}, print_seid);
    });
}

}  // namespace smc::ctl
