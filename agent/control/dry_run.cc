// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/control/dry_run.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "agent/control/served_addresses.h"
#include "agent/netns/cgroup_tree.h"
#include "agent/steer/addresses.h"
#include "agent/steer/eligibility.h"
#include "os/clock.h"
#include "os/in_namespace.h"
#include "os/sock_diag.h"

namespace smc {

using nlohmann::json;

namespace {

constexpr std::size_t kMostSockets = 5000, kMostLines = 50000;  // for one namespace: the control thread waits for it
constexpr auto kTimeSlice = std::chrono::milliseconds(50);      // then the control thread does other work

// Outbound connections of one kind are offered SMC, or not, together.
struct Kind {
    Endpoint server;
    std::uint64_t cgroup = 0;

    auto operator<=>(const Kind&) const = default;
};

struct Sockets {
    std::optional<Error> failed;
    std::map<Kind, std::size_t> outbound;  // and how many of each kind
    std::size_t connections = 0;           // of `outbound`
    std::size_t inbound = 0, left_out = 0;
};

// `agents`: the cgroup of the agent's own sockets, which are not the applications'.
Sockets sockets_here(std::uint64_t agents) {
    Sockets found;
    std::vector<SockDiag::Listed> connections;
    std::set<std::uint16_t> listening;
    for (const int family : {AF_INET, AF_INET6}) {
        const auto diag = SockDiag::open();
        const auto listed = diag ? diag->list(family, 1U << TCP_ESTABLISHED | 1U << TCP_LISTEN, kMostLines)
                                 : Result<std::vector<SockDiag::Listed>>(diag.error());
        if (!listed) {
            found.failed = listed.error();
            return found;
        }
        for (const SockDiag::Listed& one : *listed) {
            if (one.cgroup == agents) {
                continue;
            }
            if (one.state == TCP_LISTEN) {
                listening.insert(one.local.port);
            } else {
                connections.push_back(one);
            }
        }
    }
    for (const SockDiag::Listed& one : connections) {
        if (listening.contains(one.local.port)) {
            found.inbound++;
        } else if (found.connections < kMostSockets) {
            found.connections++;
            found.outbound[{one.remote, one.cgroup}]++;
        } else {
            found.left_out++;
        }
    }
    return found;
}

Sockets sockets_of(const Namespace& netns, std::uint64_t agents) {
    const UniqueFd handle = netns.handle();
    const InNamespace inside(handle.get());
    if (inside.entered()) {
        return sockets_here(agents);
    }
    Sockets none;
    none.failed = last_error("entering a network namespace");
    return none;
}

// The reason why a new connection to `remote` stays TCP; empty: no reason that can be known without its socket.
Result<std::string> obstacle_of(const IntrospectionParts& parts, const Namespace& netns, const Kind& kind,
                                const ServedAddresses& addresses) {
    if (addresses.is_of(netns.inode(), kind.server)) {
        return std::string("the address is this namespace's own");
    }
    if (const auto other = addresses.elsewhere(netns.inode(), kind.server)) {
        return both_ends_text(*other);
    }
    smc_query query{};
    query.any_cgroup = kind.cgroup == 0 ? 1 : 0;
    query.rules = ~0ULL;
    query.cgroup = kind.cgroup;
    query.netns = netns.cookie();
    query.remote = to_abi(kind.server);
    query.port = kind.server.port;
    query.direction = SMC_OUTBOUND;
    const auto answer = parts.programs.explain(query);
    if (!answer) {
        return answer.error();
    }
    for (const bpf::Check& check : bpf::kOutboundChecks) {
        if ((answer->failed >> check.decision & 1) != 0) {
            return std::string(check.text);
        }
    }
    return std::string();
}

}  // namespace

json dry_run(const IntrospectionParts& parts, std::uint64_t after) {
    const auto until = os::now() + kTimeSlice;
    const std::uint64_t agents = cgroup_id(parts.cgroups.own());
    json namespaces = json::array();
    const ServedAddresses addresses(parts.namespaces);
    for (const auto& netns : parts.namespaces.all()) {  // sorted by inode
        if (netns->inode() <= after) {
            continue;
        }
        if (!namespaces.empty() && os::now() >= until) {
            return {{"namespaces", namespaces}, {"more", true}};
        }
        const Sockets sockets = sockets_of(*netns, agents);
        if (sockets.failed) {
            namespaces.push_back({{"netns", netns->inode()}, {"failed", sockets.failed->text()}});
            continue;
        }
        json servers = json::array();
        std::size_t offered = 0;
        for (const auto& [kind, count] : sockets.outbound) {
            const auto obstacle = obstacle_of(parts, *netns, kind, addresses);
            if (!obstacle) {
                return {{"error", obstacle.error().text()}};
            }
            offered += obstacle->empty() ? count : 0;
            const auto group = parts.cgroups.groups().find(kind.cgroup);
            servers.push_back({{"server", kind.server.text()},
                               {"cgroup", group != parts.cgroups.groups().end() ? group->second.path : ""},
                               {"connections", count},
                               {"offered", obstacle->empty()},
                               {"obstacle", *obstacle}});
        }
        namespaces.push_back({{"netns", netns->inode()},
                              {"outbound", sockets.connections},
                              {"inbound", sockets.inbound},
                              {"left_out", sockets.left_out},
                              {"offered", offered},
                              {"servers", servers}});
    }
    return {{"namespaces", namespaces}};
}

}  // namespace smc
