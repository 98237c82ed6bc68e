// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/control/explain.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "agent/control/describe.h"
#include "agent/steer/addresses.h"
#include "agent/steer/eligibility.h"

namespace smc {

using nlohmann::json;

namespace {

// The ID of a process's cgroup; nullopt if it is gone.
std::optional<std::uint64_t> cgroup_of(int pid, const std::string& mount) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/cgroup");
    for (std::string line; std::getline(file, line);) {
        struct stat status {};
        if (line.starts_with("0::") && ::stat((mount + line.substr(3)).c_str(), &status) == 0) {
            return status.st_ino;
        }
    }
    return std::nullopt;
}

std::uint64_t netns_of(int pid) {
    struct stat status {};
    return ::stat(("/proc/" + std::to_string(pid) + "/ns/net").c_str(), &status) == 0 ? status.st_ino : 0;
}

std::string obstacle(const IntrospectionParts& parts, const bpf::Question& question, const smc_query& answer,
                     const Endpoint& remote, const std::string& cgroup) {
    const std::string text = question.text;
    if (question.decision == SMC_OUT_NOT_ENROLLED) {
        return text + ": " + cgroup;
    }
    if (question.decision == SMC_OUT_DENIED) {
        return answer.rule < 0 ? "no rule matches, and the default is to deny"
                               : "rule \"" + parts.policy.rule_name(answer.rule) + "\" denies it";
    }
    if (question.decision == SMC_OUT_INCAPABLE) {
        const auto entry = parts.programs.incapable(answer.netns, remote);
        const auto space = parts.namespaces.by_cookie(answer.netns);
        return text + " of netns " + std::to_string(space ? space->inode() : 0) + ": " +
               (entry ? std::string(reason_text(static_cast<Reason>(entry->reason))) : "about to expire");
    }
    return text;
}

}  // namespace

// The answers are the programs' own.
json explain(const IntrospectionParts& parts, const json& request) {
    const auto remote = Endpoint::parse(request.value("address", ""));
    if (!remote) {
        return {{"error", "\"" + request.value("address", "") + "\" is not ADDR:PORT or [ADDR]:PORT"}};
    }
    smc_query query{};
    query.remote = to_abi(*remote);
    query.port = remote->port;
    query.direction = SMC_OUTBOUND;
    query.any_cgroup = 1;
    std::string cgroup = "any";
    std::vector<std::uint64_t> spaces;
    if (const int pid = request.value("pid", 0); pid != 0) {
        const std::uint64_t inode = netns_of(pid);
        if (inode == 0) {
            return {{"error", "looking at process " + std::to_string(pid) + ": " + std::strerror(errno)}};
        }
        const auto mount = find_cgroup_mount();
        const auto id = mount ? cgroup_of(pid, *mount) : std::nullopt;
        const auto it = id ? parts.cgroups.groups().find(*id) : parts.cgroups.groups().end();
        query.any_cgroup = 0;
        query.cgroup = id.value_or(0);
        cgroup = it == parts.cgroups.groups().end() ? "not below " + parts.cgroups.root() : it->second.path;
        const auto space = parts.namespaces.by_inode(inode);
        spaces.push_back(space ? space->cookie() : 0);
    } else {
        for (const auto& space : parts.namespaces.all()) {
            spaces.push_back(space->cookie());
        }
    }
    std::vector<std::string> obstacles, unless;
    const auto note = [](std::vector<std::string>& list, const std::string& text) {
        if (std::ranges::find(list, text) == list.end()) {
            list.push_back(text);
        }
    };
    bool denied = false;
    int rule = -1;
    for (const std::uint64_t space : spaces) {
        query.netns = space;
        const auto answer = parts.programs.explain(query);
        if (!answer) {
            return {{"error", answer.error().text()}};
        }
        denied = (answer->in_the_way >> SMC_OUT_DENIED & 1) != 0;
        rule = answer->rule;
        for (const bpf::Question& question : bpf::kOutboundQuestions) {
            if ((answer->in_the_way >> question.decision & 1) != 0) {
                note(obstacles, obstacle(parts, question, *answer, *remote, cgroup));
            } else if ((answer->open >> question.decision & 1) != 0) {
                note(unless, question.text);
            }
        }
    }
    if (spaces.empty()) {
        obstacles.emplace_back("no network namespace is served");
    }
    json recent = json::array();
    for (const auto& c : parts.connections.ended()) {
        if (c->server == *remote) {
            recent.push_back(describe(*c));
        }
    }
    for (const auto& [id, c] : parts.connections.all()) {
        if (c->server == *remote) {
            recent.push_back(describe(*c));
        }
    }
    return {{"address", remote->text()},    {"cgroup", cgroup},       {"rule", parts.policy.rule_name(rule)},
            {"allowed", !denied},           {"obstacles", obstacles}, {"unless", unless},
            {"steered", obstacles.empty()}, {"recent", recent}};
}

}  // namespace smc
