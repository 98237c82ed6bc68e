// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/control/explain.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
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

std::string obstacle(const IntrospectionParts& parts, const bpf::Check& check, const smc_query& answer,
                     const Endpoint& remote, const std::string& cgroup) {
    std::string text = check.text;
    if (check.decision == SMC_OUT_NOT_ENROLLED) {
        return text + ": " + cgroup;
    }
    if (check.decision == SMC_OUT_DENIED) {
        return answer.rule < 0 ? "no rule matches, and the default is to deny"
                               : "rule \"" + parts.policy.rule_name(answer.rule) + "\" denies it";
    }
    const auto netns = parts.namespaces.by_cookie(answer.netns);
    if (check.decision == SMC_OUT_NOT_SERVED && netns) {
        return text + ": " + netns->obstacle(remote.is_v4() ? bpf::Hooks::kIpv4 : bpf::Hooks::kIpv6);
    }
    if (check.decision == SMC_OUT_NOT_NOW) {
        const auto entry = parts.programs.knows(answer.netns, remote);
        return text + ", in netns " + std::to_string(netns ? netns->inode() : 0) + ": " +
               (entry ? std::string(reason_text(static_cast<Reason>(entry->reason))) : "about to expire");
    }
    return text;
}

void note(std::vector<std::string>& list, std::string text) {
    if (std::ranges::find(list, text) == list.end()) {
        list.push_back(std::move(text));
    }
}

// Index of the check for loopback.
constexpr std::size_t kLoopback = [] {
    const auto it = std::ranges::find(bpf::kOutboundChecks, SMC_OUT_LOOPBACK, &bpf::Check::decision);
    return static_cast<std::size_t>(it - bpf::kOutboundChecks.begin());
}();

// The client of the connection in question: its cgroup, and the network namespaces that it may be in.
struct Subject {
    smc_query query{};
    std::string cgroup = "any";
    std::vector<std::uint64_t> namespaces;  // cookies; 0: a namespace that is not served
};

Subject anybody(const IntrospectionParts& parts) {
    Subject subject;
    subject.query.any_cgroup = 1;
    for (const auto& netns : parts.namespaces.all()) {
        subject.namespaces.push_back(netns->cookie());
    }
    return subject;
}

Result<Subject> process(const IntrospectionParts& parts, int pid) {
    const std::uint64_t inode = netns_of(pid);
    if (inode == 0) {
        return last_error("looking at process " + std::to_string(pid));
    }
    Subject subject;
    const auto mount = find_cgroup_mount();
    const auto id = mount ? cgroup_of(pid, *mount) : std::nullopt;
    const auto it = id ? parts.cgroups.groups().find(*id) : parts.cgroups.groups().end();
    subject.query.cgroup = id.value_or(0);
    subject.cgroup = it == parts.cgroups.groups().end() ? "not below " + parts.cgroups.root() : it->second.path;
    const auto netns = parts.namespaces.by_inode(inode);
    subject.namespaces.push_back(netns ? netns->cookie() : 0);
    return subject;
}

// The answers of the BPF programs over all namespaces.
struct Verdict {
    bool denied = false;
    int rule = -1;
    std::vector<std::string> obstacles, unless;
};

// Of a client about which nothing was said: the cgroups whose connections to this server are left to TCP.
void note_short_lived(const IntrospectionParts& parts, const smc_query& query, std::vector<std::string>& unless) {
    if (query.any_cgroup == 0) {
        return;
    }
    for (const smc_short_key& kind : parts.programs.kinds_left_to_tcp()) {
        if (kind.direction == SMC_OUTBOUND && std::memcmp(&kind.server, &query.remote, sizeof kind.server) == 0) {
            const auto it = parts.cgroups.groups().find(kind.cgroup);
            note(unless, "its cgroup is " +
                             (it == parts.cgroups.groups().end() ? std::to_string(kind.cgroup) : it->second.path) +
                             ", whose connections to this server end too early to be worth SMC");
        }
    }
}

Result<Verdict> ask(const IntrospectionParts& parts, Subject& subject, const Endpoint& remote) {
    Verdict verdict;
    std::vector<std::string> elsewhere;  // obstacles in some of the namespaces
    bool free = false;                   // there are none in another one
    for (const std::uint64_t cookie : subject.namespaces) {
        subject.query.netns = cookie;
        const auto answer = parts.programs.explain(subject.query);
        if (!answer) {
            return answer.error();
        }
        std::vector<std::string> here;
        const auto served = parts.namespaces.by_cookie(cookie);
        if (served && served->has_address(remote)) {
            note(here, bpf::kOutboundChecks[kLoopback].text);
        }
        verdict.denied = (answer->in_the_way >> SMC_OUT_DENIED & 1) != 0;
        verdict.rule = answer->rule;
        for (const bpf::Check& check : bpf::kOutboundChecks) {
            if ((answer->in_the_way >> check.decision & 1) != 0) {
                note(here, obstacle(parts, check, *answer, remote, subject.cgroup));
            } else if ((answer->open >> check.decision & 1) != 0) {
                note(verdict.unless, check.text);
            }
        }
        free |= here.empty();
        for (std::string& text : here) {
            if (served) {
                note(elsewhere, "it is in netns " + std::to_string(served->inode()) + ": " + text);
            }
            note(verdict.obstacles, std::move(text));
        }
    }
    if (free) {  // nobody has said in which namespace the client is
        verdict.obstacles.clear();
        std::ranges::move(elsewhere, std::back_inserter(verdict.unless));
    }
    note_short_lived(parts, subject.query, verdict.unless);
    if (subject.namespaces.empty()) {
        verdict.obstacles.emplace_back("no network namespace is served");
    }
    return verdict;
}

json connections_to(const IntrospectionParts& parts, const Endpoint& server) {
    json found = json::array();
    for (const auto& c : parts.connections.ended()) {
        if (c->server == server) {
            found.push_back(describe(*c));
        }
    }
    for (const auto& [id, c] : parts.connections.all()) {
        if (c->server == server) {
            found.push_back(describe(*c));
        }
    }
    return found;
}

}  // namespace

// All obstacles come from the BPF programs' own checks but one: that the address is the namespace's own.
json explain(const IntrospectionParts& parts, const json& request) {
    const auto remote = Endpoint::parse(request.value("address", ""));
    if (!remote) {
        return {{"error", "\"" + request.value("address", "") + "\" is not ADDR:PORT or [ADDR]:PORT"}};
    }
    const int pid = request.value("pid", 0);
    auto subject = pid != 0 ? process(parts, pid) : anybody(parts);
    if (!subject) {
        return {{"error", subject.error().text()}};
    }
    subject->query.remote = to_abi(*remote);
    subject->query.port = remote->port;
    subject->query.direction = SMC_OUTBOUND;
    const auto verdict = ask(parts, *subject, *remote);
    if (!verdict) {
        return {{"error", verdict.error().text()}};
    }
    return {{"address", remote->text()},
            {"cgroup", subject->cgroup},
            {"rule", parts.policy.rule_name(verdict->rule)},
            {"allowed", !verdict->denied},
            {"obstacles", verdict->obstacles},
            {"unless", verdict->unless},
            {"steered", verdict->obstacles.empty()},
            {"recent", connections_to(parts, *remote)}};
}

}  // namespace smc
