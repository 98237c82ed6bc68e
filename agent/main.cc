// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// smc-agent: command line and configuration; everything else is agent.h.
#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cstdio>
#include <iostream>
#include <memory>
#include <system_error>

#include "agent/agent.h"
#include "agent/config/schema.h"
#include "agent/log/log.h"
#include "agent/loop/lock_helper.h"
#include "smc_version.h"

namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

// Appends the contents of a file to `text`. Returns 0, or the errno of the call that failed: a directory, for example,
// can be opened but not read.
int read(const std::string& path, std::string& text) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"), std::fclose);
    if (!file) {
        return errno;
    }
    std::array<char, 65536> chunk;
    while (const std::size_t n = std::fread(chunk.data(), 1, chunk.size(), file.get())) {
        text.append(chunk.data(), n);
        if (text.size() > smc::kMostConfigText) {
            break;  // parse_config() refuses it
        }
    }
    return std::ferror(file.get()) != 0 ? errno : 0;
}

// nullopt: the problem was printed.
std::optional<smc::Config> read_config(const std::string& path) {
    if (path.empty()) {
        return smc::Config{};
    }
    std::string text;
    if (const int failure = read(path, text); failure != 0) {
        std::cerr << "smc-agent: " << path << ": cannot be read: " << std::generic_category().message(failure) << "\n";
        return std::nullopt;
    }
    auto parsed = smc::parse_config(text);
    if (const auto* problem = std::get_if<smc::ConfigProblem>(&parsed)) {
        std::cerr << "smc-agent: " << path << ": " << (problem->pointer.empty() ? "/" : problem->pointer) << ": "
                  << problem->text << "\n";
        return std::nullopt;
    }
    return std::get<smc::Config>(parsed);
}

// A thread that cannot be started is an exception of the standard library.
smc::Result<void> start(smc::Agent& agent) try { return agent.start(); } catch (const std::system_error& failure) {
    return smc::Error{failure.code().value(), "starting a thread (limit of threads?)"};
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"Shared Memory Communications for unmodified TCP programs", "smc-agent"};
    app.footer(
        "Exit codes: 0 after SIGTERM or SIGINT, or when another agent has taken over; 1 it cannot start or go on;\n"
        "2 a mistake in the command line or the configuration.");
    std::string path;
    bool check = false, take_over = false;
    int ready_fd = -1, lock_helper_fd = -1;
    bool print = false, all = false, print_schema = false, print_reference = false;
    app.set_version_flag("--version", std::string("smc-agent ") + smc::kVersion);
    app.add_option("--config", path, "Configuration (JSON); without it the built-in default runs")
        ->check([](const std::string& name) { return name.empty() ? "no file is named" : ""; });
    app.add_option("--ready-fd", ready_fd)->group("");  // of the agent that starts this one (agent/upgrade/successor.h)
    app.add_option("--lock-helper-fd", lock_helper_fd)
        ->group("");  // of a process of the agent (agent/loop/lock_helper.h)
    app.add_flag("--take-over", take_over, "If an agent serves already, have it leave, and take over from it");
    app.add_flag("--check-config", check, "Check the configuration, print nothing if it is good");
    auto* printed =
        app.add_flag("--print-default-config", print, "Print the default configuration: the keys to start with");
    app.add_flag("--all", all, "With --print-default-config: print all keys")->needs(printed);
    app.add_flag("--print-config-schema", print_schema, "Print the JSON Schema of the configuration");
    app.add_flag("--print-config-reference", print_reference,
                 "Print every key, its default and its meaning (Markdown)");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : kExitUsage;
    }
    if (lock_helper_fd >= 0) {
        return smc::loop::serve_lock_helper(lock_helper_fd);
    }
    if (print) {
        std::cout << smc::print_config({}, all ? smc::Keys::kAll : smc::Keys::kFirst) << "\n";
        return 0;
    }
    if (print_schema) {
        std::cout << smc::print_config_schema() << "\n";
        return 0;
    }
    if (print_reference) {
        std::cout << smc::print_config_reference();
        return 0;
    }
    const auto config = read_config(path);
    if (!config) {
        return kExitUsage;
    }
    if (check) {
        for (const std::string& note : config->notes) {
            std::cerr << "smc-agent: " << path << ": " << note << "\n";
        }
        return 0;
    }
    smc::start_log(config->log_level);
    smc::log()->info("smc-agent {} configuration {}", smc::kVersion, path.empty() ? "built-in default" : path);
    for (const std::string& note : config->notes) {
        smc::log()->warn("configuration {}: {}", path, note);
    }
    smc::log()->info("effective configuration {}", smc::print_config(*config, smc::Keys::kAll, -1));

    smc::leave_own_cgroup_namespace();  // the agent looks for its memory limit first of all
    smc::Agent agent(*config, take_over, smc::UniqueFd(ready_fd));
    if (const auto started = start(agent); !started) {
        smc::log()->error("cannot start: {}", started.error().text());
        smc::end_log();
        return kExitFailure;
    }
    agent.run();
    smc::end_log();
    return 0;
}
