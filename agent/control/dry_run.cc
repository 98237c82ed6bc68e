// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/control/dry_run.h"

#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "agent/steer/addresses.h"
#include "agent/steer/eligibility.h"
#include "os/clock.h"
#include "os/in_namespace.h"

namespace smc {

using nlohmann::json;

namespace {

constexpr std::size_t kMostSockets = 5000, kMostLines = 50000;  // for one namespace: the control thread waits for it
constexpr auto kTimeSlice = std::chrono::milliseconds(50);      // then the control thread does other work
constexpr unsigned kEstablished = 1, kListen = 10;

// Parses "0100007F:1F90": an address as 32-bit words in host byte order, one for IPv4 or four for IPv6, and a port.
Endpoint endpoint_of(const std::string& text) {
    Endpoint out;
    const auto colon = text.find(':');
    const std::size_t words = colon / 8;
    std::uint8_t* at = out.ip.data() + (words == 1 ? 12 : 0);
    if (words == 1) {
        out.ip[10] = out.ip[11] = 0xff;
    }
    for (std::size_t i = 0; i < words && i < 4; i++) {
        std::uint32_t word = 0;
        std::from_chars(text.data() + i * 8, text.data() + i * 8 + 8, word, 16);
        std::memcpy(at + i * 4, &word, 4);
    }
    std::from_chars(text.data() + colon + 1, text.data() + text.size(), out.port, 16);
    return out;
}

struct Sockets {
    std::vector<Endpoint> remotes;  // of outbound connections
    std::size_t inbound = 0, left_out = 0;
};

// Inodes of the agent's own sockets, which are not the applications'.
std::set<std::uint64_t> own_sockets() {
    std::set<std::uint64_t> inodes;
    std::error_code failure;
    using Entries = std::filesystem::directory_iterator;
    for (Entries it("/proc/self/fd", failure), end; !failure && it != end; it.increment(failure)) {
        std::error_code closed;
        const std::string target = std::filesystem::read_symlink(it->path(), closed).string();
        constexpr std::string_view kSocket = "socket:[";
        if (std::uint64_t inode = 0; target.starts_with(kSocket)) {
            std::from_chars(target.data() + kSocket.size(), target.data() + target.size(), inode);
            inodes.insert(inode);
        }
    }
    return inodes;
}

void read_table(const std::string& path, const std::set<std::uint64_t>& own, std::set<std::uint16_t>& listening,
                std::vector<std::pair<Endpoint, Endpoint>>& connections) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);  // heading
    for (std::size_t lines = 0; lines < kMostLines && std::getline(file, line); lines++) {
        std::istringstream words(line);
        std::string number, local, remote, state, queues, timer, retransmitted, user, timeout;
        std::uint64_t inode = 0;
        words >> number >> local >> remote >> state >> queues >> timer >> retransmitted >> user >> timeout >> inode;
        if (own.contains(inode)) {
            continue;
        }
        unsigned value = 0;
        std::from_chars(state.data(), state.data() + state.size(), value, 16);
        if (value == kListen) {
            listening.insert(endpoint_of(local).port);
        } else if (value == kEstablished) {
            connections.emplace_back(endpoint_of(local), endpoint_of(remote));
        }
    }
}

// Reads the tables on a thread of its own, which enters the namespace.
Sockets sockets_of(const Namespace& netns, const std::set<std::uint64_t>& own) {
    Sockets found;
    const UniqueFd handle = netns.handle();
    std::thread([&] {
        const InNamespace inside(handle.get());
        if (!inside.entered()) {
            return;
        }
        std::set<std::uint16_t> listening;
        std::vector<std::pair<Endpoint, Endpoint>> connections;
        read_table("/proc/thread-self/net/tcp", own, listening, connections);
        read_table("/proc/thread-self/net/tcp6", own, listening, connections);
        for (const auto& [local, remote] : connections) {
            if (listening.contains(local.port)) {
                found.inbound++;
            } else if (found.remotes.size() < kMostSockets) {
                found.remotes.push_back(remote);
            } else {
                found.left_out++;
            }
        }
    }).join();
    return found;
}

// The reason why a new connection to `remote` stays TCP; empty: no reason that can be known without its socket.
Result<std::string> obstacle_of(const IntrospectionParts& parts, const Namespace& netns, const Endpoint& remote) {
    if (netns.has_address(remote)) {
        return std::string("the address is this namespace's own");
    }
    smc_query query{};
    query.any_cgroup = 1;
    query.netns = netns.cookie();
    query.remote = to_abi(remote);
    query.port = remote.port;
    query.direction = SMC_OUTBOUND;
    const auto answer = parts.programs.explain(query);
    if (!answer) {
        return answer.error();
    }
    for (const bpf::Check& check : bpf::kOutboundChecks) {
        if ((answer->in_the_way >> check.decision & 1) != 0) {
            return std::string(check.text);
        }
    }
    return std::string();
}

}  // namespace

json dry_run(const IntrospectionParts& parts, std::uint64_t after) {
    const auto until = os::now() + kTimeSlice;
    const std::set<std::uint64_t> own = own_sockets();
    json namespaces = json::array();
    for (const auto& netns : parts.namespaces.all()) {  // sorted by inode
        if (netns->inode() <= after) {
            continue;
        }
        if (!namespaces.empty() && os::now() >= until) {
            return {{"namespaces", namespaces}, {"more", true}};
        }
        const Sockets sockets = sockets_of(*netns, own);
        std::map<Endpoint, std::size_t> by_server;
        for (const Endpoint& remote : sockets.remotes) {
            by_server[remote]++;
        }
        json servers = json::array();
        std::size_t offered = 0;
        for (const auto& [server, count] : by_server) {
            const auto obstacle = obstacle_of(parts, *netns, server);
            if (!obstacle) {
                return {{"error", obstacle.error().text()}};
            }
            offered += obstacle->empty() ? count : 0;
            servers.push_back({{"server", server.text()},
                               {"connections", count},
                               {"offered", obstacle->empty()},
                               {"obstacle", *obstacle}});
        }
        namespaces.push_back({{"netns", netns->inode()},
                              {"outbound", sockets.remotes.size()},
                              {"inbound", sockets.inbound},
                              {"left_out", sockets.left_out},
                              {"offered", offered},
                              {"servers", servers}});
    }
    return {{"namespaces", namespaces}};
}

}  // namespace smc
