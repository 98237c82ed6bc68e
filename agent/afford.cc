// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/afford.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>

#include "agent/log/log.h"
#include "os/memory_limit.h"

namespace smc {

namespace {

// A connection holds at most six descriptors (a spliced one: two sockets, two pipes).
unsigned connections_by_descriptors(unsigned wanted) {
    constexpr rlim_t kEach = 6;
    constexpr rlim_t kOthers = 4608;  // 12 for every namespace, 512 DMBs of the pool (agent/smcd/pool.h)
    const rlim_t needed = wanted * kEach + kOthers;
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    rlimit raised{std::max(limit.rlim_max, needed), std::max(limit.rlim_max, needed)};
    if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) {
        return wanted;
    }
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max >= needed) {
        return wanted;
    }
    const rlim_t others = std::min(kOthers, limit.rlim_max / 2);
    const rlim_t afforded = (limit.rlim_max - others) / kEach;
    log()->info("limits.connections {} lowered to {}: the system allows {} file descriptors", wanted, afforded,
                limit.rlim_max);
    return static_cast<unsigned>(afforded);
}

void lower(unsigned& value, std::uint64_t to, const char* key, std::uint64_t limit_mib) {
    if (value > to) {
        log()->info("{} {} lowered to {}: the control group allows {} MiB", key, value, to, limit_mib);
        value = static_cast<unsigned>(to);
    }
}

bool has_rdma_device() {
    std::error_code none;
    return std::filesystem::directory_iterator("/sys/class/infiniband", none) != std::filesystem::directory_iterator();
}

// The agent by itself, what a connection takes beside its rings, and of the rest the two kinds of rings. Where there is
// no RoCE device yet, a small part is kept for one.
void lower_by_memory(Config& config, std::uint64_t limit) {
    constexpr std::uint64_t kAgent = 24, kConnectionsInMib = 8, kLeast = 4;  // MiB; each connection up to 128 KiB
    const std::uint64_t mib = limit >> 20;
    const std::uint64_t rest = std::max(kLeast, mib - std::min(mib, kAgent));
    const std::uint64_t rings = std::max<std::uint64_t>(1, rest / 2);
    const std::uint64_t for_roce = !config.roce.enabled ? 0 : has_rdma_device() ? rings / 2 : rings / 8;
    lower(config.max_connections, rest / 2 * kConnectionsInMib, "limits.connections", mib);
    lower(config.ism_memory_mib, std::max<std::uint64_t>(1, rings - for_roce), "ism.memory_mib", mib);
    lower(config.roce.memory_mib, std::max<std::uint64_t>(1, for_roce), "roce.memory_mib", mib);
}

}  // namespace

void lower_to_what_the_system_allows(Config& config) {
    config.max_connections = connections_by_descriptors(config.max_connections);
    if (const auto limit = memory_limit()) {
        lower_by_memory(config, *limit);
    }
}

}  // namespace smc
