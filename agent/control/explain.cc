// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/control/explain.h"

#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <ranges>

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

// Cgroups that the same rule groups match: `name` is one of them.
struct Alike {
    std::uint64_t rules = 0;
    std::string name;
    std::size_t count = 0;

    [[nodiscard]] std::string text() const {
        return "its cgroup is " + name +
               (count > 1 ? " or one of " + std::to_string(count - 1) + " more with the same rules" : "");
    }
};

std::vector<Alike> kinds_of_cgroups(const IntrospectionParts& parts) {
    std::map<std::uint64_t, Alike> kinds;
    for (const auto& [id, group] : parts.cgroups.groups()) {
        if (group.enrolled) {
            Alike& kind = kinds.try_emplace(group.rules, Alike{group.rules, group.path}).first->second;
            kind.count++;
        }
    }
    constexpr std::size_t kMost = 64;  // bits of Obstacles
    std::vector<Alike> all;
    std::ranges::move(kinds | std::views::values | std::views::take(kMost), std::back_inserter(all));
    return all.empty() ? std::vector<Alike>{{~0ULL, "one that every rule selects", 1}} : all;
}

// The client of the connection in question: its cgroup, and the network namespaces that it may be in.
struct Subject {
    smc_query query{};
    std::string cgroup = "any";
    std::vector<Alike> kinds{{}};           // of the cgroups that it may be in
    std::vector<std::uint64_t> namespaces;  // cookies; 0: a namespace that is not served
};

Subject anybody(const IntrospectionParts& parts) {
    Subject subject;
    subject.query.any_cgroup = 1;
    subject.kinds = kinds_of_cgroups(parts);
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

// The answers of the BPF programs over all namespaces and all kinds of cgroups.
struct Verdict {
    bool free = false;    // in some namespace and cgroup nothing is in the way
    bool denied = false;  // where that is so; or else in the last ones
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

// Whether the check asks what the rule allows that decides: where that rule denies, its result says nothing.
bool depends_on_rule(int decision) {
    return decision == SMC_OUT_NOTHING || decision == SMC_OUT_LIMITED || decision == SMC_OUT_SHORT_LIVED;
}

// Obstacles to a connection from a namespace, each with the kinds of cgroups that it holds for (bit n: kinds[n]).
using Obstacles = std::vector<std::pair<std::string, std::uint64_t>>;

void note(Obstacles& list, const std::string& text, std::size_t kind) {
    auto it = std::ranges::find(list, text, &Obstacles::value_type::first);
    if (it == list.end()) {
        it = list.insert(list.end(), {text, 0});
    }
    it->second |= std::uint64_t{1} << kind;
}

// Adds the obstacles of one namespace and one kind of cgroup.
Result<void> ask(const IntrospectionParts& parts, const Subject& subject, const Endpoint& remote, std::size_t kind,
                 Verdict& verdict, Obstacles& here) {
    const auto answer = parts.programs.explain(subject.query);
    if (!answer) {
        return answer.error();
    }
    bool is_free = true;
    const auto add = [&](const std::string& text) {
        is_free = false;
        note(here, text, kind);
    };
    const auto served = parts.namespaces.by_cookie(subject.query.netns);
    if (served && served->has_address(remote)) {
        add(bpf::kOutboundChecks[kLoopback].text);
    }
    const bool denied = (answer->in_the_way >> SMC_OUT_DENIED & 1) != 0;
    for (const bpf::Check& check : bpf::kOutboundChecks) {
        if (denied && depends_on_rule(check.decision)) {
            continue;
        }
        if ((answer->in_the_way >> check.decision & 1) != 0) {
            add(obstacle(parts, check, *answer, remote, subject.cgroup));
        } else if ((answer->open >> check.decision & 1) != 0) {
            note(verdict.unless, check.text);
        }
    }
    if (is_free || !verdict.free) {
        verdict.denied = denied;
        verdict.rule = answer->rule;
    }
    verdict.free |= is_free;
    return {};
}

Result<Verdict> ask(const IntrospectionParts& parts, Subject& subject, const Endpoint& remote) {
    Verdict verdict;
    std::vector<std::string> elsewhere;  // obstacles in some of the namespaces, or for some of the cgroups
    for (const std::uint64_t cookie : subject.namespaces) {
        subject.query.netns = cookie;
        Obstacles here;
        for (std::size_t kind = 0; kind < subject.kinds.size(); kind++) {
            subject.query.rules = subject.kinds[kind].rules;
            if (auto asked = ask(parts, subject, remote, kind, verdict, here); !asked) {
                return asked.error();
            }
        }
        const auto served = parts.namespaces.by_cookie(cookie);
        const std::string where = served ? "it is in netns " + std::to_string(served->inode()) : "";
        for (const auto& [text, kinds] : here) {
            note(verdict.obstacles, text);
            if (std::popcount(kinds) == static_cast<int>(subject.kinds.size())) {
                note(elsewhere, where.empty() ? text : where + ": " + text);
                continue;
            }
            for (std::size_t kind = 0; kind < subject.kinds.size(); kind++) {
                if ((kinds >> kind & 1) != 0) {
                    note(elsewhere, subject.kinds[kind].text() + ": " + text);
                }
            }
        }
    }
    if (verdict.free) {  // nobody has said in which namespace and cgroup the client is
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
