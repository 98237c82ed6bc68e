// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/control/served_addresses.h"

#include <algorithm>
#include <ranges>

#include "os/in_namespace.h"
#include "os/rtnetlink.h"

namespace smc {

namespace {

// Whether the address means another host in each network namespace.
bool is_local_only(const Endpoint& address) {
    if (address.is_v4()) {
        return address.ip[12] == 127 || (address.ip[12] == 169 && address.ip[13] == 254);
    }
    return address.ip == Endpoint::loopback(true, 0).ip || (address.ip[0] == 0xfe && (address.ip[1] & 0xc0) == 0x80);
}

}  // namespace

ServedAddresses::ServedAddresses(const Namespaces& namespaces) {
    for (const auto& netns : namespaces.all()) {
        const UniqueFd handle = netns->handle();
        const InNamespace inside(handle.get());
        const auto rtnetlink = inside.entered() ? Rtnetlink::open() : Result<Rtnetlink>(Error{});
        const auto addresses = rtnetlink ? rtnetlink->addresses() : Result<std::vector<NetAddress>>(Error{});
        if (addresses) {
            for (const NetAddress& own : *addresses) {
                inodes_.emplace(own.address.ip, netns->inode());
            }
        }
    }
}

bool ServedAddresses::is_of(std::uint64_t inode, const Endpoint& address) const {
    const auto [from, to] = inodes_.equal_range(address.ip);
    return std::ranges::any_of(from, to, [&](const auto& entry) { return entry.second == inode; });
}

std::optional<std::uint64_t> ServedAddresses::elsewhere(std::uint64_t inode, const Endpoint& address) const {
    const auto [from, to] = inodes_.equal_range(address.ip);
    const auto it = std::ranges::find_if(from, to, [&](const auto& entry) { return entry.second != inode; });
    return it == to || is_local_only(address) ? std::nullopt : std::optional(it->second);
}

}  // namespace smc
