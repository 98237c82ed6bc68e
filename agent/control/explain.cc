// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/control/explain.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "agent/control/describe.h"
#include "agent/control/served_addresses.h"
#include "agent/netns/cgroup_tree.h"
#include "agent/steer/addresses.h"
#include "agent/steer/eligibility.h"

namespace smc {

using nlohmann::json;

namespace {

// The directory of a process's cgroup; empty: it is gone.
std::string cgroup_of(int pid, const std::string& mount) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/cgroup");
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("0::")) {
            return mount + line.substr(3);
        }
    }
    return "";
}

// Why a cgroup has no entry.
std::string without_entry(const IntrospectionParts& parts, const std::string& directory) {
    const std::string& root = parts.cgroups.root();
    if (directory != root && !directory.starts_with(root + "/")) {
        return "not below " + root;
    }
    return directory.substr(root.size()) + (parts.cgroups.left_out() != 0
                                                ? ", which is one of more than " + std::to_string(SMC_MAX_CGROUPS)
                                                : std::string(", which the agent does not know yet"));
}

std::uint64_t netns_of(int pid) {
    struct stat status {};
    return ::stat(("/proc/" + std::to_string(pid) + "/ns/net").c_str(), &status) == 0 ? status.st_ino : 0;
}

// `netns`: null if it is not served.
std::string obstacle(const IntrospectionParts& parts, const bpf::Check& check, const smc_query& answer,
                     const Namespace* netns, const Endpoint& remote, const std::string& cgroup) {
    std::string text = check.text;
    if (check.decision == SMC_OUT_NOT_ENROLLED) {
        return text + ": " + cgroup;
    }
    if (check.decision == SMC_OUT_DENIED) {
        return answer.rule < 0 ? "no rule matches, and the default is to deny"
                               : "rule \"" + parts.policy.rule_name(answer.rule) + "\" denies it";
    }
    if (check.decision == SMC_OUT_NOT_SERVED && netns != nullptr) {
        return text + ": " + netns->obstacle(remote.is_v4() ? bpf::Hooks::kIpv4 : bpf::Hooks::kIpv6);
    }
    if (check.decision == SMC_OUT_NOT_NOW) {
        const auto entry = parts.programs.knows(answer.netns, remote);
        return text + ", in netns " + std::to_string(netns != nullptr ? netns->inode() : 0) + ": " +
               (entry ? std::string(reason_text(static_cast<Reason>(entry->reason))) : "about to expire");
    }
    return text;
}

void note(std::vector<std::string>& list, std::string text) {
    if (std::ranges::find(list, text) == list.end()) {
        list.push_back(std::move(text));
    }
}

// Index of the check whose result this is.
constexpr std::size_t index_of(int decision) {
    const auto it = std::ranges::find(bpf::kOutboundChecks, decision, &bpf::Check::decision);
    return static_cast<std::size_t>(it - bpf::kOutboundChecks.begin());
}
constexpr std::size_t kLoopback = index_of(SMC_OUT_LOOPBACK), kNotEnrolled = index_of(SMC_OUT_NOT_ENROLLED);

// Cgroups about whose connections to the server the same rule decides: `name` is one of them.
struct CgroupKind {
    std::uint64_t rules = 0;  // the rule groups that match that one
    bool limited = false;     // the bandwidth of their pods is limited
    std::string name;
    std::size_t count = 0;

    [[nodiscard]] std::string text() const {
        return "its cgroup is " + name +
               (count > 1 ? ", or one of " + std::to_string(count - 1) + " others like it" : "");
    }
    void add(const std::string& path, std::size_t more) {
        name = count == 0 ? path : name;
        count += more;
    }
};

// The client of the connection in question: its cgroup, and the network namespaces that it may be in.
struct Subject {
    smc_query query{};
    std::string cgroup = "any";
    std::vector<CgroupKind> kinds{{}};      // of the cgroups that it may be in
    CgroupKind not_enrolled;                // the other cgroups; their connections are always TCP
    std::vector<std::uint64_t> namespaces;  // cookies; 0: a namespace that is not served
};

Subject anybody(const IntrospectionParts& parts) {
    Subject subject;
    subject.query.any_cgroup = 1;
    subject.kinds.clear();
    std::map<std::pair<std::uint64_t, bool>, CgroupKind> kinds;
    for (const auto& [id, group] : parts.cgroups.groups()) {
        if (group.enrolled) {
            CgroupKind& kind = kinds[{group.rules, group.limited}];
            kind.rules = group.rules;
            kind.limited = group.limited;
            kind.add(group.path, 1);
        } else if (parts.cgroups.root() + group.path != parts.cgroups.own()) {
            subject.not_enrolled.add(group.path, 1);
        }
    }
    for (auto& [alike, kind] : kinds) {
        subject.kinds.push_back(std::move(kind));
    }
    for (const auto& netns : parts.namespaces.all()) {
        subject.namespaces.push_back(netns->cookie());
    }
    return subject;
}

void set_kind(smc_query& query, const CgroupKind& kind) {
    query.rules = kind.rules;
    query.limited = kind.limited ? 1 : 0;
}

// Unites the kinds about which the same rule decides. The namespace has no influence on that.
Result<void> unite_kinds(const IntrospectionParts& parts, Subject& subject) {
    std::map<std::tuple<bool, int, bool>, CgroupKind> united;
    for (const CgroupKind& kind : subject.kinds) {
        set_kind(subject.query, kind);
        const auto answer = parts.programs.explain(subject.query);
        if (!answer) {
            return answer.error();
        }
        CgroupKind& one = united[{(answer->failed >> SMC_OUT_DENIED & 1) != 0, answer->rule, kind.limited}];
        one.rules = one.count == 0 ? kind.rules : one.rules;
        one.limited = kind.limited;
        one.add(kind.name, kind.count);
    }
    subject.kinds.clear();
    for (auto& [alike, kind] : united) {
        subject.kinds.push_back(std::move(kind));
    }
    return {};
}

Result<Subject> process(const IntrospectionParts& parts, int pid) {
    const std::uint64_t inode = netns_of(pid);
    if (inode == 0) {
        return last_error("looking at process " + std::to_string(pid));
    }
    Subject subject;
    const auto mount = find_cgroup_mount();
    const std::string directory = mount ? cgroup_of(pid, *mount) : "";
    subject.query.cgroup = cgroup_id(directory);
    const auto it = parts.cgroups.groups().find(subject.query.cgroup);
    subject.cgroup = it == parts.cgroups.groups().end() ? without_entry(parts, directory) : it->second.path;
    const auto netns = parts.namespaces.by_inode(inode);
    subject.namespaces.push_back(netns ? netns->cookie() : 0);
    return subject;
}

// The answers of the BPF programs over all namespaces and all kinds of cgroups.
struct Verdict {
    bool asked = false;
    bool free = false;    // in some namespace and cgroup nothing is in the way
    bool denied = false;  // in all of them
    int rule = -1;        // the rule that allows it, or else one that denies it
    std::vector<std::string> obstacles, unless;
};

// If no process is given: adds the cgroups whose connections to this server are left to TCP.
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

// Whether the check depends on what the deciding rule allows. If that rule denies, the result means nothing.
bool depends_on_rule(int decision) {
    return decision == SMC_OUT_NO_DEVICE || decision == SMC_OUT_LIMITED || decision == SMC_OUT_SHORT_LIVED;
}

// A namespace and a kind of cgroup that the client may be in: indexes of Subject::namespaces and Subject::kinds.
using Place = std::pair<std::size_t, std::size_t>;
// Obstacles, each with the places that have it.
using Obstacles = std::vector<std::pair<std::string, std::set<Place>>>;

// Adds the obstacles of one place. `netns`: null if it is not served; `has_address`: the server's address is its own.
Result<void> ask(const IntrospectionParts& parts, const Subject& subject, const Endpoint& remote,
                 const Namespace* netns, bool has_address, const Place& place, Verdict& verdict, Obstacles& found) {
    const auto answer = parts.programs.explain(subject.query);
    if (!answer) {
        return answer.error();
    }
    bool is_free = true;
    const auto add = [&](const std::string& text) {
        is_free = false;
        const auto it = std::ranges::find(found, text, &Obstacles::value_type::first);
        (it != found.end() ? *it : found.emplace_back(text, std::set<Place>{})).second.insert(place);
    };
    if (has_address) {
        add(bpf::kOutboundChecks[kLoopback].text);
    }
    const bool denied = (answer->failed >> SMC_OUT_DENIED & 1) != 0;
    for (const bpf::Check& check : bpf::kOutboundChecks) {
        if (denied && depends_on_rule(check.decision)) {
            continue;
        }
        if (check.decision == SMC_OUT_AGENT_GONE && (answer->failed >> SMC_OUT_NOT_SERVED & 1) != 0) {
            continue;  // that says why the agent does not listen
        }
        if ((answer->failed >> check.decision & 1) != 0) {
            add(obstacle(parts, check, *answer, netns, remote, subject.cgroup));
        } else if ((answer->needs_socket >> check.decision & 1) != 0) {
            note(verdict.unless, check.text);
        }
    }
    // The verdict is about a connection without an obstacle, if there is one, or else about one that a rule allows.
    if (!verdict.asked || (is_free && !verdict.free)) {
        verdict.denied = denied;
        verdict.rule = answer->rule;
    }
    verdict.asked = true;
    verdict.free |= is_free;
    return {};
}

// Adds each obstacle to the verdict, with the places that it depends on. `elsewhere`: the same for a client that may be
// in a place without an obstacle.
void tell(const IntrospectionParts& parts, const Subject& subject, const Obstacles& found, Verdict& verdict,
          std::vector<std::string>& elsewhere) {
    std::vector<std::string> where;  // by index of the namespace
    for (const std::uint64_t cookie : subject.namespaces) {
        const auto netns = parts.namespaces.by_cookie(cookie);
        where.push_back(netns ? "it is in netns " + std::to_string(netns->inode()) : "");
    }
    for (const auto& [text, places] : found) {
        std::map<std::size_t, std::vector<std::size_t>> kinds;  // by namespace
        std::map<std::size_t, std::size_t> namespaces;          // how many, by kind
        for (const auto& [netns, kind] : places) {
            kinds[netns].push_back(kind);
            namespaces[kind]++;
        }
        for (const auto& [netns, those] : kinds) {
            if (those.size() == subject.kinds.size()) {
                note(verdict.obstacles, text);
                note(elsewhere, where[netns].empty() ? text : where[netns] + ": " + text);
                continue;
            }
            for (const std::size_t kind : those) {
                const std::string whose = subject.kinds[kind].text() + ": " + text;
                const bool everywhere = where[netns].empty() || namespaces[kind] == subject.namespaces.size();
                note(verdict.obstacles, whose);
                note(elsewhere, everywhere ? whose : where[netns] + ", " + whose);
            }
        }
    }
}

Result<Verdict> ask(const IntrospectionParts& parts, Subject& subject, const Endpoint& remote) {
    Verdict verdict;
    Obstacles found;
    const ServedAddresses addresses(parts.namespaces);
    std::vector<std::string> elsewhere;  // obstacles in some of the namespaces, or for some of the cgroups
    for (std::size_t at = 0; at < subject.namespaces.size(); at++) {
        subject.query.netns = subject.namespaces[at];
        if (!verdict.asked && subject.query.any_cgroup != 0) {
            if (auto united = unite_kinds(parts, subject); !united) {
                return united.error();
            }
        }
        const auto netns = parts.namespaces.by_cookie(subject.namespaces[at]);
        const bool has_address = netns && addresses.is_of(netns->inode(), remote);
        if (const auto other = netns ? addresses.elsewhere(netns->inode(), remote) : std::nullopt) {
            note(verdict.unless, both_ends_text(*other));  // or a host elsewhere has the same address
        }
        for (std::size_t kind = 0; kind < subject.kinds.size(); kind++) {
            set_kind(subject.query, subject.kinds[kind]);
            if (auto asked = ask(parts, subject, remote, netns.get(), has_address, {at, kind}, verdict, found);
                !asked) {
                return asked.error();
            }
        }
    }
    tell(parts, subject, found, verdict, elsewhere);
    if (subject.not_enrolled.count != 0) {
        const bool all = subject.kinds.empty();
        note(all ? verdict.obstacles : elsewhere,
             subject.not_enrolled.text() + ": " + bpf::kOutboundChecks[kNotEnrolled].text);
    }
    if (verdict.free) {  // nobody has said in which namespace and cgroup the client is
        verdict.obstacles.clear();
        std::ranges::move(elsewhere, std::back_inserter(verdict.unless));
    } else if (subject.kinds.empty() && verdict.obstacles.empty()) {
        verdict.obstacles.emplace_back("no cgroup is known yet");
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

// All obstacles come from the checks of the BPF programs, except that the address is the namespace's own.
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
            {"rule", verdict->asked ? json(parts.policy.rule_name(verdict->rule)) : json()},
            {"allowed", verdict->asked && !verdict->denied},
            {"obstacles", verdict->obstacles},
            {"unless", verdict->unless},
            {"steered", verdict->obstacles.empty()},
            {"recent", connections_to(parts, *remote)}};
}

}  // namespace smc
