// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Whether a namespace is served: each device's hairpin is tried with a packet of the agent's own.
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "agent/log/log.h"
#include "agent/steer/hooks.h"
#include "agent/steer/probe_packet.h"
#include "os/clock.h"
#include "os/in_namespace.h"

namespace smc::bpf {

namespace {

// A probe may be late because its processor was busy, so a single lost one says nothing yet.
constexpr unsigned kMisses = 3;
constexpr auto kApart = std::chrono::milliseconds(500);  // between losses, or one stall would count for all
constexpr unsigned kProbesPerLook = 6;  // limits and VLANs of devices are looked at with each sixth probe

}  // namespace

// The packet has come back when sendto() returns, unless another thread processes this processor's queue of packets.
bool Hooks::probe_returns(unsigned index, const Device& device, Family family) const {
    const auto looped = [&] {
        const auto value = programs_.devices.get({slot_, index});
        return value ? (family == kIpv6 ? value->looped6 : value->looped4) : 0;
    };
    const auto before = programs_.devices.get({slot_, index});
    if (!before) {
        return false;
    }
    const auto packet = probe_packet(device.mac_len, family == kIpv6, before->probe);
    sockaddr_ll to{};
    to.sll_family = AF_PACKET;
    to.sll_protocol = htons(family == kIpv6 ? ETH_P_IPV6 : ETH_P_IP);
    to.sll_ifindex = static_cast<int>(index);
    const std::uint64_t count = family == kIpv6 ? before->looped6 : before->looped4;
    if (::sendto(packets_.get(), packet.data(), packet.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof to) < 0) {
        return false;
    }
    for (unsigned i = 0; i < 50; i++) {
        if (looped() != count) {
            return true;
        }
        ::usleep(i * 2);
    }
    return false;
}

void Hooks::probe(unsigned index, Device& device, Family family) const {
    bool returned = probe_returns(index, device, family);
    if (!returned && attach_again(index, device)) {
        returned = probe_returns(index, device, family);
    }
    unsigned& misses = device.misses[family];
    if (returned) {
        misses = 0;
        device.works[family] = true;
        return;
    }
    if (const TimePoint now = os::now(); misses == 0 || now - device.missed[family] >= kApart) {
        misses++;
        device.missed[family] = now;
    }
    if (misses >= kMisses && std::exchange(device.works[family], false)) {
        const char* const ip = family == kIpv6 ? "IPv6" : "IPv4";
        log()->limited(
            LogLevel::kWarn,
            "device {}: the hairpin lost three {} probes in a row, so {} is not served in its network namespace; is a "
            "filter or a qdisc in the way?",
            device.name, ip, ip);
    }
}

// One hairpin that does not work decides for its address family, and its probe takes long, so the others are skipped.
void Hooks::probe_all() {
    for (const Family family : {kIpv4, kIpv6}) {
        bool all_work = devices_.size() <= kMostDevices;
        for (auto& [index, device] : devices_) {
            if (all_work && device.up && device.problem.empty()) {
                probe(index, device, family);
                all_work = device.works[family];
            } else {
                device.misses[family] = 0;
            }
        }
    }
}

Result<Hooks::State> Hooks::probe() {
    // Some limits of a device change without an event, such as a link of XDP: look at them now and then.
    if (!packets_ || ++probes_ >= kProbesPerLook) {
        return sync_devices();
    }
    const InNamespace inside(netns_.get());
    if (!inside.entered()) {
        return last_error("entering the netns");
    }
    probe_all();
    return conclude(false);
}

// A SYN that leaves by one device may be answered by another, so the hairpins of all devices must work.
Hooks::State Hooks::conclude(bool unfinished) const {
    State state;
    state.unfinished = unfinished;
    state.vlans = vlans_;
    for (const auto& [index, device] : devices_) {
        if (device.up && device.problem.empty()) {
            state.devices.push_back(device.name);
            state.doubtful |= std::ranges::any_of(device.misses, [](unsigned n) { return n != 0 && n < kMisses; });
        }
    }
    if (unfinished) {
        return state;
    }
    for (const auto& [index, device] : devices_) {
        if (!device.limits.empty()) {
            state.limits = "device " + device.name + ": " + device.limits;
            break;
        }
    }
    for (const Family family : {kIpv4, kIpv6}) {
        std::string obstacle;
        bool any_up = false;
        for (const auto& [index, device] : devices_) {
            any_up |= device.up;
            if (device.up && obstacle.empty() && (!device.problem.empty() || !device.works[family])) {
                obstacle = "device " + device.name + ": " +
                           (device.problem.empty() ? "the hairpin does not work" : device.problem);
            }
        }
        if (devices_.size() > kMostDevices) {
            obstacle = "it has more than " + std::to_string(kMostDevices) + " devices";
        } else if (!any_up) {
            obstacle = "no device is up";
        }
        state.obstacles[family] = std::move(obstacle);
    }
    return state;
}

}  // namespace smc::bpf
