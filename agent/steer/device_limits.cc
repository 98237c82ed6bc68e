// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/steer/device_limits.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "os/in_namespace.h"

namespace smc::bpf {

namespace {

// Whether a queueing discipline holds back or drops only what the device cannot take.
bool only_queues(const std::string& qdisc) {
    static constexpr std::array<std::string_view, 12> kQueues{
        "noqueue", "noop", "pfifo_fast", "pfifo", "bfifo", "fq", "fq_codel", "codel", "sfq", "mq", "ingress", "clsact"};
    return std::ranges::find(kQueues, qdisc) != kQueues.end();
}

std::string shaping(const std::vector<std::string>& qdiscs) {
    const auto found = std::ranges::find_if_not(qdiscs, only_queues);
    return found == qdiscs.end() ? "" : *found;
}

// A tunnel without a link header belongs to a VPN, unless its kind is known to send what it is given as it is.
bool encrypts_itself(const NetDevice& device) {
    static constexpr std::array<std::string_view, 6> kPlain{"ipip", "sit", "gre", "ip6gre", "ip6tnl", "netkit"};
    return device.kind == "macsec" || (device.header == 0U && std::ranges::find(kPlain, device.kind) == kPlain.end());
}

// Whether `lower` is a port of the device, or the device below it in the same namespace.
bool is_below(const NetDevice& lower, const NetDevice& device) {
    return lower.index != device.index &&
           (lower.controller == device.index || (lower.index == device.link && !device.link_netns));
}

bool encrypts(const NetDevice& device, const std::vector<NetDevice>& devices, int stacked) {
    return encrypts_itself(device) || (stacked > 0 && std::ranges::any_of(devices, [&](const NetDevice& lower) {
                                           return is_below(lower, device) && encrypts(lower, devices, stacked - 1);
                                       }));
}

// Kinds of queueing disciplines, by the device's index. "fq maxrate": one that limits each flow's rate.
using Kinds = std::map<unsigned, std::vector<std::string>>;

Result<Kinds> kinds_in(const Rtnetlink& there) {
    const auto qdiscs = there.qdiscs();
    if (!qdiscs) {
        return qdiscs.error();
    }
    Kinds kinds;
    for (const Qdisc& qdisc : *qdiscs) {
        kinds[qdisc.device].push_back(qdisc.kind + (qdisc.paces ? " maxrate" : ""));
    }
    return kinds;
}

// The network namespace of the agent's process: usually the node's own.
struct OwnSide {
    std::optional<int> id;  // its ID in the namespace that is examined; none: unknown there
    Kinds kinds;
};

OwnSide own_side(const Rtnetlink& there, const Rtnetlink& own) {
    OwnSide side{there.netns_id(home_netns()), {}};
    if (side.id) {
        side.kinds = kinds_in(own).value_or(Kinds());
    }
    return side;
}

}  // namespace

std::string limit_of(const DeviceRules& rules, std::optional<unsigned> own_priority) {
    if (const std::string qdisc = shaping(rules.qdiscs); !qdisc.empty()) {
        return "its queueing discipline is " + qdisc;
    }
    if (const std::string qdisc = shaping(rules.opposite); !qdisc.empty()) {
        return "the queueing discipline of its other end is " + qdisc;
    }
    // A filter in front of ours that is no program may end the processing of the packets that it matches. (A program in
    // front usually does so with all packets or with none, which the probe shows.)
    const auto limits = [&](const Filter& filter) {
        return !own_priority || filter.priority > *own_priority || filter.kind != "bpf";
    };
    if (std::ranges::any_of(rules.filters, limits)) {
        return "it has filters at its egress (clsact)";
    }
    if (rules.tcx_behind) {
        return "it has programs at its egress behind the agent's (tcx)";
    }
    return rules.native_xdp ? "it has a native XDP program" : "";
}

bool encrypts(const NetDevice& device, const std::vector<NetDevice>& devices) {
    constexpr int kMostStacked = 8;  // the kernel's own limit
    return encrypts(device, devices, kMostStacked);
}

Result<std::map<unsigned, DeviceRules>> device_rules(const Rtnetlink& there, const std::vector<NetDevice>& devices,
                                                     const Rtnetlink& own) {
    auto kinds = kinds_in(there);
    if (!kinds) {
        return kinds.error();
    }
    const bool has_pairs =
        std::ranges::any_of(devices, [](const NetDevice& device) { return device.link_netns.has_value(); });
    const OwnSide side = has_pairs ? own_side(there, own) : OwnSide{};
    std::map<unsigned, DeviceRules> found;
    for (const NetDevice& device : devices) {
        DeviceRules& rules = found[device.index];
        rules.native_xdp = device.native_xdp;
        rules.qdiscs = (*kinds)[device.index];
        if (side.id && device.link_netns == side.id) {
            const auto opposite = side.kinds.find(device.link);
            rules.opposite = opposite != side.kinds.end() ? opposite->second : std::vector<std::string>();
        }
        if (std::ranges::find(rules.qdiscs, "clsact") != rules.qdiscs.end()) {
            if (auto filters = there.egress_filters(device.index)) {  // an Error: the device is gone
                rules.filters = std::move(*filters);
            }
        }
    }
    return found;
}

}  // namespace smc::bpf
