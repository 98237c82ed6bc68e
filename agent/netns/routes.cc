// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/netns/routes.h"

#include <sys/socket.h>

#include <chrono>
#include <fstream>
#include <string>

#include "os/clock.h"
#include "os/in_namespace.h"
#include "os/rtnetlink.h"

namespace smc {

namespace {

constexpr std::size_t kMostKnown = 1024;
constexpr auto kLife = std::chrono::seconds(1);

// Whether one of several paths of equal cost may be chosen by the ports, in the calling thread's network namespace.
bool hashes_ports(int family) {
    unsigned policy = 0;
    std::ifstream("/proc/sys/net/" + std::string(family == AF_INET6 ? "ipv6" : "ipv4") +
                  "/fib_multipath_hash_policy") >>
        policy;
    return policy != 0;
}

std::optional<Routes::Found> ask(const Routes::Flow& flow, int netns_fd) {
    const InNamespace inside(netns_fd);
    if (!inside.entered()) {
        return std::nullopt;
    }
    const Endpoint from{flow.from, 0}, to{flow.to, 0};
    const auto there = Rtnetlink::open();
    const auto route = there ? there->route(from, to, {IPPROTO_TCP, flow.mark, flow.uid}) : std::nullopt;
    if (!route) {
        return std::nullopt;
    }
    return Routes::Found{route->device, there->routes_by_ports(to.family()) || hashes_ports(to.family())};
}

}  // namespace

std::optional<Routes::Found> Routes::of(const Flow& flow, int netns_fd) {
    const TimePoint now = os::now();
    if (const auto known = known_.find(flow); known != known_.end() && now < known->second.until) {
        return known->second.found;
    }
    if (known_.size() >= kMostKnown) {
        known_.clear();
    }
    return known_.insert_or_assign(flow, Known{ask(flow, netns_fd), now + kLife}).first->second.found;
}

}  // namespace smc
