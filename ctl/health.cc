// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `smcctl health`, for probes that run in the agent's own container. An HTTP probe would be answered by the agent that
// serves on this node, which may be in another container.
#include <sys/socket.h>
#include <sys/stat.h>

#include <filesystem>
#include <iostream>
#include <memory>
#include <system_error>

#include "ctl/client.h"
#include "ctl/commands.h"
#include "os/mounts.h"
#include "os/unix_socket.h"

namespace smc::ctl {

using nlohmann::json;

namespace {

// Less than the five seconds after which kubelet gives a probe up.
constexpr std::chrono::seconds kLongestConnect{1}, kLongestStatus{3};

// Whether the process is in this container, that is, in this mount namespace. True without containers, except that a
// service may have a mount namespace of its own.
bool is_own(pid_t process) {
    struct stat theirs {};
    struct stat own {};
    if (process == 0) {
        return false;
    }
    if (os::sees_the_nodes_mounts()) {
        return true;
    }
    return ::stat(("/proc/" + std::to_string(process) + "/ns/mnt").c_str(), &theirs) == 0 &&
           ::stat("/proc/self/ns/mnt", &own) == 0 && theirs.st_ino == own.st_ino && theirs.st_dev == own.st_dev;
}

// The answer of this container's own agent at this socket. Agents of other containers are not asked: they may hang.
std::optional<json> own_agent_at(const std::string& socket) {
    const auto connected = connect_unix(socket, SOCK_STREAM, kLongestConnect);
    if (!connected || !is_own(listener_of(connected->get()))) {
        return std::nullopt;
    }
    // A list of connections would take the agent longer the more it has to do.
    const auto status = ask_over(connected->get(), {{"command", "status"}, {"connections", false}}, kLongestStatus);
    return status && status->contains("agent") ? std::optional(status->at("agent")) : std::nullopt;
}

// Whether this container's agent has been replaced by another one, and still runs.
bool is_leaving(const std::string& socket) {
    std::error_code none;  // no directory: no agent
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(socket).parent_path(), none)) {
        if (entry.path().string().starts_with(socket + ".leaving-") && own_agent_at(entry.path())) {
            return true;
        }
    }
    return false;
}

// The fault of this container's agent; empty: none. An agent that takes no connections for a while (its limits,
// smcctl drain) is ready all the same: Kubernetes would end it before its successor has taken over.
std::string problem_of(const std::string& socket, bool ready) {
    const auto agent = own_agent_at(socket);
    if (!agent) {
        return ready                ? "this container's agent does not serve"
               : is_leaving(socket) ? ""
                                    : "this container's agent does not answer";
    }
    return ready && !agent->value("ready", false) ? agent->value("obstacle", "the agent is not ready") : "";
}

}  // namespace

void add_health(CLI::App& app, Context& context) {
    auto* command = app.add_subcommand("health", "Whether this container's own agent answers: a probe");
    const auto ready = std::make_shared<bool>(false);
    command->add_flag("--ready", *ready,
                      "Also require that its data path moves, and that it is neither stopped nor replaced");
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
