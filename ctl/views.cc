// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Commands that print an answer of the agent.
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <memory>
#include <thread>

#include "ctl/client.h"
#include "ctl/commands.h"
#include "ctl/print.h"
#include "ctl/stats.h"

namespace smc::ctl {

using nlohmann::json;

std::optional<json> answer_of(Context& context, const json& request) {
    auto answer = ask(context.socket, request);
    if (!answer) {
        std::cerr << "Error: " << answer.error().text() << " (is smc-agent running? --socket names another)\n";
        context.exit = kNoAgent;
        return std::nullopt;
    }
    if (answer->contains("error")) {
        std::cerr << "Error: " << answer->at("error").get<std::string>() << "\n";
        context.exit = kRefused;
        return std::nullopt;
    }
    context.exit = kDone;
    return std::move(*answer);
}

int show(const Context& how, const json& request, const Print& print, const Choose& choose) {
    return show(
        how, [&request](Context& context) { return answer_of(context, request); }, print, choose);
}

int show(const Context& how, const Ask& ask, const Print& print, const Choose& choose) {
    Context context = how;
    for (;;) {
        auto answer = ask(context);
        if (!answer) {
            return context.exit;
        }
        const json wanted = choose ? choose(std::move(*answer)) : std::move(*answer);
        if (context.watch_s != 0 && !context.json && ::isatty(STDOUT_FILENO) != 0) {
            std::cout << "\033[H\033[2J";
        }
        if (context.json) {
            std::cout << wanted.dump(context.watch_s != 0 ? -1 : 2) << std::endl;
        } else {
            print(std::cout, wanted);
            std::cout << std::flush;
        }
        if (context.watch_s == 0 || !std::cout) {
            return kDone;
        }
        std::this_thread::sleep_for(std::chrono::seconds(context.watch_s));
    }
}

namespace {

// The values of -R, -D and -d.
struct Selection {
    bool only_smcr = false, only_smcd = false;
    int details = 0;
};

std::shared_ptr<Selection> add_selection(CLI::App* command, const char* more) {
    auto selection = std::make_shared<Selection>();
    auto* r = command->add_flag("-R,--smcr", selection->only_smcr, "SMC-R only");
    command->add_flag("-D,--smcd", selection->only_smcd, "SMC-D only")->excludes(r);
    command->add_flag("-d,--details", selection->details, more);
    return selection;
}

void add_linkgroup(CLI::App& app, Context& context) {
    auto* linkgroup = app.add_subcommand("linkgroup", "Link groups, as smcr and smcd show them");
    const auto what = std::make_shared<std::string>("show");
    linkgroup->add_option("WHAT", *what, "show, or link-show for the links")
        ->check(CLI::IsMember({"show", "link-show"}))
        ->capture_default_str();
    const auto selection = add_selection(linkgroup, "More columns; twice for still more");
    linkgroup->callback([&context, what, selection] {
        if (*what == "link-show" && selection->only_smcd) {
            std::cerr << "Error: SMC-D link groups have no links\n";
            context.exit = kUsage;
            return;
        }
        const GroupView view{*what == "link-show", selection->details, !selection->only_smcd, !selection->only_smcr};
        context.exit = show(
            context, {{"command", "linkgroups"}},
            [&](std::ostream& out, const json& groups) { print_link_groups(out, groups, view); },
            [&](json groups) { return chosen(std::move(groups), view); });
    });
}

// The connections of an answer. Warns if connections are missing from it.
json listed(json answer) {
    if (!answer.value("whole", true)) {
        std::cerr << "smcctl: the list is incomplete: not all tuned connections are shown\n";
    }
    return std::move(answer.at("connections"));
}

void add_sockets(CLI::App& app, Context& context) {
    auto* ss = app.add_subcommand("ss", "Connections, as smcss shows them");
    const auto selection = add_selection(ss, "More columns");
    ss->callback([&context, selection] {
        const bool both = !selection->only_smcr && !selection->only_smcd;
        const SocketView view{selection->details > 0, !selection->only_smcd, !selection->only_smcr, both};
        context.exit = show(
            context, {{"command", "connections"}},
            [&](std::ostream& out, const json& list) { print_sockets(out, list, view); },
            [&](json answer) { return chosen(listed(std::move(answer)), view); });
    });
    auto* connections = app.add_subcommand("connections", "Connections with their path and reason");
    const auto ended = std::make_shared<bool>(false);
    connections->add_flag("--ended", *ended, "The last ones that ended instead");
    connections->callback([&context, ended] {
        context.exit = show(context, {{"command", "connections"}, {"ended", *ended}}, print_connections, listed);
    });
}

void add_devices(CLI::App& app, Context& context) {
    auto* device = app.add_subcommand("device", "RoCE and ISM devices, as smcr and smcd show them");
    const auto details = std::make_shared<int>(0);
    device->add_flag("-d,--details", *details, "More columns");
    device->callback([&context, details] {
        context.exit = show(context, {{"command", "devices"}},
                            [&](std::ostream& out, const json& devices) { print_devices(out, devices, *details); });
    });
    app.add_subcommand("pnet", "Which RoCE ports are used for which networks (roce.pnets), as smc_pnet has it")
        ->callback([&context] {
            context.exit = show(context, {{"command", "devices"}}, print_pnet);
        });
    app.add_subcommand("info", "What this agent and its node can do, as smcr info and smcd info have it")
        ->callback([&context] {
            context.exit = show(context, {{"command", "status"}}, print_info);
        });
}

void add_stats(CLI::App& app, Context& context) {
    auto* stats = app.add_subcommand(
        "stats", "Totals since the agent's start or the last reset, in the form of smcr stats and smcd stats");
    const auto what = std::make_shared<std::string>("show");
    const auto absolute = std::make_shared<bool>(false);
    stats->add_option("WHAT", *what, "show, or reset: count from here on, for this user")
        ->check(CLI::IsMember({"show", "reset"}))
        ->capture_default_str();
    stats->add_flag("-a,--absolute", *absolute, "Totals since the agent's start, also after a reset");
    stats->callback([&context, what, absolute] {
        if (*what == "reset") {
            if (const auto status = answer_of(context, {{"command", "status"}})) {
                context.exit = reset_stats(*status) ? kDone : kRefused;
            }
            return;
        }
        context.exit = show(context, {{"command", "status"}}, print_stats,
                            [&](const json& status) { return *absolute ? sums_of(status) : since_reset(status); });
    });
}

// Asks several times, because one answer has a few namespaces only.
std::optional<json> dry_run_of(Context& context) {
    json all = {{"namespaces", json::array()}};
    json after = 0;
    for (bool more = true; more;) {
        const auto answer = answer_of(context, {{"command", "dry-run"}, {"after", after}});
        if (!answer) {
            return std::nullopt;
        }
        for (const auto& space : answer->at("namespaces")) {
            after = space.at("netns");
            all["namespaces"].push_back(space);
        }
        more = answer->value("more", false);
    }
    return all;
}

void add_explain(CLI::App& app, Context& context) {
    auto* explain = app.add_subcommand("explain", "What would happen to a connection, and why");
    const auto address = std::make_shared<std::string>();
    const auto pid = std::make_shared<int>(0);
    explain->add_option("ADDR:PORT", *address, "Server, as 10.0.0.1:80 or [fd00::1]:80")->required();
    explain->add_option("--pid", *pid, "Explain it for the cgroup and network namespace of this process");
    explain->callback([&context, address, pid] {
        context.exit = show(context, {{"command", "explain"}, {"address", *address}, {"pid", *pid}}, print_explanation);
    });
    app.add_subcommand("dry-run", "Show which of the present connections would be offered SMC; changes nothing")
        ->callback([&context] { context.exit = show(context, dry_run_of, print_dry_run); });
}

}  // namespace

void add_views(CLI::App& app, Context& context) {
    app.add_subcommand("status", "Agent, namespaces, link groups, decisions, connections")->callback([&context] {
        context.exit = show(context, {{"command", "status"}}, print_status);
    });
    add_sockets(app, context);
    add_linkgroup(app, context);
    add_devices(app, context);
    add_stats(app, context);
    add_explain(app, context);
}

void add_bypass(CLI::App& app, Context& context) {
    app.add_subcommand("probe", "Where bypassed sockets differ from TCP on this kernel, and whether the bypass is on")
        ->callback([&context] {
            context.exit = show(context, {{"command", "probe"}}, print_probe);
        });
    auto* bypass = app.add_subcommand("bypass", "Connections within this node that go past TCP");
    bypass->require_subcommand(0, 1);
    const auto* revoke =
        bypass->add_subcommand("revoke", "End the bypass for all present connections: they go on by TCP");
    bypass->callback([&context, revoke] {
        const bool revokes = revoke->parsed();
        context.exit = revokes ? show(once(context), {{"command", "bypass-revoke"}}, print_revoked)
                               : show(context, {{"command", "bypass"}}, print_bypass);
    });
}

}  // namespace smc::ctl
