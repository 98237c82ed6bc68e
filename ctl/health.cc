// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `smcctl health`, for probes that run in the agent's own container. An HTTP probe would be answered by the agent that
// serves on this node, which may be in another container.
#include <filesystem>
#include <iostream>
#include <memory>
#include <system_error>

#include "ctl/client.h"
#include "ctl/commands.h"

namespace smc::ctl {

using nlohmann::json;

namespace {

// Whether the agent is in this container, that is, in this mount namespace. Without containers every agent is in it.
bool is_own(const json& agent) {
    std::error_code failure;
    const auto theirs =
        std::filesystem::read_symlink("/proc/" + agent.value("pid", json(0)).dump() + "/ns/mnt", failure);
    return !failure && theirs == std::filesystem::read_symlink("/proc/self/ns/mnt", failure) && !failure;
}

std::optional<json> agent_at(const std::string& socket) {
    const auto status = ask(socket, {{"command", "status"}});
    if (!status || !status->contains("agent") || !is_own((*status)["agent"])) {
        return std::nullopt;
    }
    return (*status)["agent"];
}

// Whether this container's agent has been replaced by another one, and still runs.
bool is_leaving(const std::string& socket) {
    std::error_code none;  // no directory: no agent
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(socket).parent_path(), none)) {
        if (entry.path().string().starts_with(socket + ".leaving-") && agent_at(entry.path())) {
            return true;
        }
    }
    return false;
}

// The fault of this container's agent; empty: none. A leaving agent is alive whether or not the agent that
// replaces it answers.
std::string problem_of(const std::string& socket, bool ready) {
    if (!ready && is_leaving(socket)) {
        return "";
    }
    const auto agent = agent_at(socket);
    if (!agent) {
        return std::string("this container's agent does not ") + (ready ? "serve" : "answer");
    }
    return ready && !agent->value("serving", false)
               ? agent->value("obstacle", "the agent does not serve new connections")
               : "";
}

}  // namespace

void add_health(CLI::App& app, Context& context) {
    auto* command = app.add_subcommand("health", "Whether this container's own agent answers: a probe");
    const auto ready = std::make_shared<bool>(false);
    command->add_flag("--ready", *ready, "Also require that it serves, and was not replaced by another agent");
    command->callback([&context, ready] {
        std::string problem;
        try {
            problem = problem_of(context.socket, *ready);
        } catch (const std::filesystem::filesystem_error& error) {
            problem = error.what();
        }
        if (!problem.empty()) {
            std::cerr << "Error: " << problem << "\n";
            context.exit = kRefused;
        }
    });
}

}  // namespace smc::ctl
