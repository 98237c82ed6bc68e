// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// smcctl: looks at a running agent, and at captures. Exit codes: 0 done, 1 the agent says no or the capture is broken,
// 2 usage, 3 no agent there.
#include <CLI/CLI.hpp>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "ctl/client.h"
#include "ctl/decode.h"
#include "ctl/print.h"
#include "os/paths.h"
#include "smc_version.h"

namespace {

using nlohmann::json;

json all_of_it(json answer) {
    return answer;
}

// `choose`: what of the answer is wanted, as JSON or as text.
int run(const std::string& socket, const json& request, bool as_json,
        const std::function<void(std::ostream&, const json&)>& print,
        const std::function<json(json)>& choose = all_of_it) {
    const auto answer = smc::ctl::ask(socket, request);
    if (!answer) {
        std::cerr << "Error: " << answer.error().text() << " (is smc-agent running? --socket names another)\n";
        return 3;
    }
    if (answer->contains("error")) {
        std::cerr << "Error: " << (*answer)["error"].get<std::string>() << "\n";
        return 1;
    }
    const json wanted = choose(*answer);
    if (as_json) {
        std::cout << wanted.dump(2) << "\n";
    } else {
        print(std::cout, wanted);
    }
    return 0;
}

CLI::App* add_decode(CLI::App& app, smc::ctl::DecodeOptions& to) {
    auto* decode = app.add_subcommand("decode", "SMC messages in a capture, as text or with --json; needs no agent");
    decode->add_option("FILE", to.file, "pcap or pcapng, also compressed by gzip; - is standard input")
        ->capture_default_str();
    auto* hex = decode->add_flag("--hex", to.hex, "FILE has messages in hexadecimal, one per line");
    decode->add_flag("--summary", to.summary, "The history of each connection instead of its messages")->excludes(hex);
    return decode;
}

struct BypassCommands {
    const CLI::App *probe, *show, *revoke;
};

BypassCommands add_bypass(CLI::App& app) {
    const auto* probe =
        app.add_subcommand("probe", "What this kernel does with the bypass's sockets, and whether it is on");
    auto* show = app.add_subcommand("bypass", "Connections within this node that go past TCP");
    show->require_subcommand(0, 1);
    return {probe, show, show->add_subcommand("revoke", "Ends it for all that are now: they go on by TCP")};
}

// Nothing: it is none of them.
std::optional<int> run(const BypassCommands& which, const std::string& socket, bool as_json) {
    if (which.probe->parsed()) {
        return run(socket, {{"command", "probe"}}, as_json, smc::ctl::print_probe);
    }
    if (which.revoke->parsed()) {
        return run(socket, {{"command", "bypass-revoke"}}, as_json, smc::ctl::print_revoked);
    }
    if (which.show->parsed()) {
        return run(socket, {{"command", "bypass"}}, as_json, smc::ctl::print_bypass);
    }
    return std::nullopt;
}

int show_devices(const std::string& socket, bool as_json, int details) {
    return run(socket, {{"command", "devices"}}, as_json,
               [&](std::ostream& out, const json& devices) { smc::ctl::print_devices(out, devices, details); });
}

int show_sockets(const std::string& socket, bool as_json, const smc::ctl::SocketView& view) {
    return run(
        socket, {{"command", "connections"}}, as_json,
        [&](std::ostream& out, const json& list) { smc::ctl::print_sockets(out, list, view); },
        [&](const json& answer) { return smc::ctl::chosen(answer["connections"], view); });
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"Looks at a running smc-agent, and at SMC in captures", "smcctl"};
    app.require_subcommand(1);
    app.fallthrough();
    std::string socket = smc::kControlSocket;
    bool as_json = false;
    app.set_version_flag("-v,--version", std::string("smcctl ") + smc::kVersion);
    app.set_help_all_flag("--help-all", "Print this and every subcommand's options, and exit");
    app.add_option("--socket", socket, "The agent's control socket")->capture_default_str();
    app.add_flag("-j,--json", as_json, "Print JSON");

    auto* status = app.add_subcommand("status", "Agent, namespaces, link groups, decisions, connections");
    auto* connections = app.add_subcommand("connections", "Connections with their path and reason");
    bool ended = false;
    connections->add_flag("--ended", ended, "The last ones that ended instead");
    auto* explain = app.add_subcommand("explain", "What would happen to a connection, and why");
    std::string address;
    int pid = 0;
    explain->add_option("ADDR:PORT", address, "Where to, as 10.0.0.1:80 or [fd00::1]:80")->required();
    explain->add_option("--pid", pid, "For this process: its cgroup and network namespace");
    bool only_smcr = false, only_smcd = false;
    int details = 0;
    const auto choose = [&](CLI::App* command, const char* more) {
        auto* r = command->add_flag("-R,--smcr", only_smcr, "SMC-R only");
        command->add_flag("-D,--smcd", only_smcd, "SMC-D only")->excludes(r);
        command->add_flag("-d,--details", details, more);
    };
    auto* linkgroup = app.add_subcommand("linkgroup", "Link groups, as smcr and smcd show them");
    std::string what = "show";
    linkgroup->add_option("WHAT", what, "show, or link-show for the links")
        ->check(CLI::IsMember({"show", "link-show"}))
        ->capture_default_str();
    choose(linkgroup, "More columns; twice for still more");
    auto* device = app.add_subcommand("device", "RoCE and ISM devices, as smcr and smcd show them");
    device->add_flag("-d,--details", details, "More columns");
    auto* ss = app.add_subcommand("ss", "Connections, as smcss shows them");
    choose(ss, "More columns");
    const BypassCommands bypass = add_bypass(app);
    smc::ctl::DecodeOptions decoding;
    const auto* decode = add_decode(app, decoding);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    if (decode->parsed()) {
        decoding.json = as_json;
        return smc::ctl::decode(decoding, std::cout, std::cerr);
    }
    if (status->parsed()) {
        return run(socket, {{"command", "status"}}, as_json, smc::ctl::print_status);
    }
    if (connections->parsed()) {
        return run(socket, {{"command", "connections"}, {"ended", ended}}, as_json, smc::ctl::print_connections,
                   [](const json& answer) { return answer["connections"]; });
    }
    if (linkgroup->parsed()) {
        if (what == "link-show" && only_smcd) {
            std::cerr << "Error: SMC-D link groups have no links\n";
            return 2;
        }
        const smc::ctl::GroupView view{what == "link-show", details, !only_smcd, !only_smcr};
        return run(
            socket, {{"command", "linkgroups"}}, as_json,
            [&](std::ostream& out, const json& groups) { smc::ctl::print_link_groups(out, groups, view); },
            [&](json groups) { return smc::ctl::chosen(std::move(groups), view); });
    }
    if (device->parsed()) {
        return show_devices(socket, as_json, details);
    }
    if (const auto done = run(bypass, socket, as_json)) {
        return *done;
    }
    if (ss->parsed()) {
        return show_sockets(socket, as_json, {details > 0, !only_smcd, !only_smcr, !only_smcr && !only_smcd});
    }
    return run(socket, {{"command", "explain"}, {"address", address}, {"pid", pid}}, as_json,
               smc::ctl::print_explanation);
}
