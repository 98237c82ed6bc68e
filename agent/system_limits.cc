// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/system_limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "agent/log/log.h"

namespace smc {

namespace {

// A connection holds at most six descriptors (a spliced one: two sockets, two pipes).
unsigned connections_by_descriptors(unsigned wanted) {
    constexpr rlim_t kEach = 6;
    constexpr rlim_t kOthers = 4608;  // 12 for each of 340 namespaces, 512 DMBs of the pool (agent/smcd/pool.h)
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
    const rlim_t allowed = (limit.rlim_max - others) / kEach;
    log()->info("limits.connections {} lowered to {}: the system allows {} file descriptors (LimitNOFILE, ulimit -Hn)",
                wanted, allowed, limit.rlim_max);
    return static_cast<unsigned>(allowed);
}

// Returns true if the value has changed.
bool set(unsigned& value, unsigned to, const char* key, const std::optional<std::uint64_t>& bytes) {
    if (value == to) {
        return false;
    }
    const std::string allowed = bytes ? std::to_string(*bytes >> 20) + " MiB of memory" : "all of the memory";
    log()->info("{} {} {} to {}: the control group allows {}", key, value, to < value ? "lowered" : "raised", to,
                allowed);
    value = to;
    return true;
}

bool has_rdma_device() {
    std::error_code none;
    return std::filesystem::directory_iterator("/sys/class/infiniband", none) != std::filesystem::directory_iterator();
}

}  // namespace

// Divides the memory: a fixed part for the agent itself; of the rest, half for connections without their rings, and
// half for the rings of SMC-D and SMC-R. Without an RDMA device only a small part is kept for SMC-R.
MemoryWatch::Limits MemoryWatch::lowered(Limits limits, bool roce, std::uint64_t bytes) {
    constexpr std::uint64_t kAgent = 24, kConnectionsInMib = 8, kLeast = 4;  // MiB; each connection up to 128 KiB
    const std::uint64_t mib = bytes >> 20;
    const std::uint64_t rest = std::max(kLeast, mib - std::min(mib, kAgent));
    const std::uint64_t rings = std::max<std::uint64_t>(1, rest / 2);
    const std::uint64_t for_roce = !roce ? 0 : has_rdma_device() ? rings / 2 : rings / 8;
    const auto at_most = [](unsigned value, std::uint64_t most) {
        return static_cast<unsigned>(std::min<std::uint64_t>(value, std::max<std::uint64_t>(1, most)));
    };
    return {at_most(limits.connections, rest / 2 * kConnectionsInMib), at_most(limits.ism_mib, rings - for_roce),
            at_most(limits.roce_mib, for_roce)};
}

bool MemoryWatch::look() {
    const auto bytes = limit_.read();
    if (!configured_) {
        configured_ = Limits{config_.max_connections, config_.ism_memory_mib, config_.roce.memory_mib};
    } else if (bytes == bytes_) {
        return false;
    }
    bytes_ = bytes;
    const Limits now = bytes ? lowered(*configured_, config_.roce.enabled, *bytes) : *configured_;
    bool changed = set(config_.max_connections, now.connections, "limits.connections", bytes);
    changed |= set(config_.ism_memory_mib, now.ism_mib, "ism.memory_mib", bytes);
    changed |= set(config_.roce.memory_mib, now.roce_mib, "roce.memory_mib", bytes);
    return changed;
}

void lower_to_the_descriptors(Config& config) {
    config.max_connections = connections_by_descriptors(config.max_connections);
}

}  // namespace smc
