// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/steer/hooks.h"

#include <bpf/bpf.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "agent/log/log.h"
#include "agent/steer/clsact.h"
#include "agent/steer/device_limits.h"
#include "agent/steer/tcx.h"
#include "os/in_namespace.h"
#include "os/random.h"

namespace smc::bpf {

namespace {

constexpr unsigned kFreshAtOnce = 4;

constexpr auto kHeaderUnknown = std::uint32_t(-1);

}  // namespace

Result<void> Hooks::load() {
    if (packets_) {
        return {};
    }
    auto out = programs_.for_slot(Programs::PerNamespace::kOut, slot_);
    auto in = programs_.for_slot(Programs::PerNamespace::kIn, slot_);
    auto lookup = programs_.for_slot(Programs::PerNamespace::kLookup, slot_);
    for (const auto* program : {&out, &in, &lookup}) {
        if (!*program) {
            return program->error();
        }
    }
    out_ = std::move(*out);
    in_ = std::move(*in);
    if (!withdrawn_) {
        lookup_.reset(bpf_link_create(lookup->get(), netns_.get(), BPF_SK_LOOKUP, nullptr));
        if (!lookup_) {
            return refusal("to attach BPF program smc_lookup (sk_lookup)", errno);
        }
        // Pinned, so that it outlives an agent that is killed: the ACK that ends a handshake of the agent's listener
        // must not reach the application's listener.
        lookup_pin_ = pin(lookup_, "smc_lookup_" + std::to_string(slot_));
    }
    packets_.reset(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    return packets_ ? Result<void>() : Result<void>(last_error("opening a packet socket"));
}

// Returns the name; empty: the link could not be pinned.
std::string Hooks::pin(const UniqueFd& link, const std::string& name) const {
    unpin(name);
    const std::string path = programs_.pins() + "/" + name;
    if (bpf_obj_pin(link.get(), path.c_str()) != 0) {
        log()->warn("pin {} could not be made, so the program is detached when the agent ends: {}", path,
                    std::generic_category().message(errno));
        return "";
    }
    return name;
}

void Hooks::unpin(const std::string& name) const {
    if (name.empty()) {
        return;
    }
    ::unlink((programs_.pins() + "/" + name).c_str());
}

void Hooks::withdraw() {
    withdrawn_ = true;
    unpin(lookup_pin_);
    lookup_.reset();
}

Hooks::~Hooks() {
    unpin(lookup_pin_);
    const InNamespace inside(netns_.get());
    for (const auto& [index, device] : devices_) {
        detach(index, device);
    }
}

void Hooks::attach(unsigned index, Device& device) const {
    for (const unsigned number : programs_.instance().deserted) {
        if (!clsact::detach(index, number)) {
            break;
        }
    }
    Result<void> attached;
    if (device.mac_len == kHeaderUnknown) {
        attached = Error{EPFNOSUPPORT, "unsupported link-layer header"};
    } else if (options_.tc == Tc::kClsact) {
        attached = attach_clsact(index, device);
    } else {
        attached = attach_tcx(index, device);
        const int error = attached ? 0 : attached.error().code;
        if (options_.tc == Tc::kAuto && (error == EINVAL || error == ENOTSUP || error == EPERM)) {
            std::ranges::for_each(device.pins, [this](const std::string& name) { unpin(name); });
            device.pins.clear();
            device.links.clear();
            attached = attach_clsact(index, device);
        }
    }
    const std::string problem = attached ? "" : attached.error().text();
    if (!attached) {
        if (problem != device.problem) {
            log()->limited(
                LogLevel::kWarn,
                "device {} (slot {}): the programs could not be attached, so its network namespace is not served: {}",
                device.name, slot_, problem);
        }
        detach(index, device);
        device.pins.clear();
        device.links.clear();
        device.clsact = false;
    }
    device.problem = problem;
}

Result<void> Hooks::attach_tcx(unsigned index, Device& device) const {
    for (const bool out : {true, false}) {
        if (auto attached = attach_tcx(index, device, out); !attached) {
            return attached;
        }
    }
    return {};
}

Result<void> Hooks::attach_tcx(unsigned index, Device& device, bool out) const {
    UniqueFd link = tcx::attach(out ? out_.get() : in_.get(), index, out);
    if (!link) {
        return last_error("attaching to " + device.name + " by tcx");
    }
    const std::string pinned =
        pin(link, "smc_device_" + std::to_string(slot_) + "_" + std::to_string(index) + (out ? "_out" : "_in"));
    if (pinned.empty()) {
        device.links.push_back(std::move(link));
    } else if (std::ranges::find(device.pins, pinned) == device.pins.end()) {
        device.pins.push_back(pinned);
    }
    return {};
}

Result<void> Hooks::attach_clsact(unsigned index, Device& device) const {
    device.clsact = true;
    auto attached = clsact::attach(index, programs_.instance().number, out_.get(), in_.get());
    return attached ? attached : Error{attached.error().code, "device " + device.name + ": " + attached.error().doing};
}

// Attaches programs again that somebody has detached: by deleting the qdisc that they were attached to, the pins of
// their links, or the links themselves. With clsact they are attached in any case. False: nothing was attached.
bool Hooks::attach_again(unsigned index, Device& device) const {
    if (device.clsact) {
        return attach_clsact(index, device).has_value();
    }
    bool any = false;
    for (const bool out : {true, false}) {
        const auto place = tcx::position(out ? out_.get() : in_.get(), index, out);
        if (place && !place->attached) {
            const auto attached = attach_tcx(index, device, out);
            any |= attached.has_value();
            const std::string why = attached ? "" : attached.error().text();  // then the next probe tries again
            if (why != device.attach_again_problem && !why.empty()) {
                log()->limited(LogLevel::kWarn,
                               "device {}: programs that had been removed could not be attached again: {}", device.name,
                               why);
            }
            device.attach_again_problem = why;
        }
    }
    if (any) {
        log()->limited(LogLevel::kWarn,
                       "device {}: programs are attached again: they, or their pins in {}, had been removed",
                       device.name, programs_.pins());
    }
    return any;
}

// Writes `encrypts` of the device into the map. A probe that the programs count at that moment may count as lost; one
// alone decides nothing.
void Hooks::tell_encrypts(unsigned index, const Device& device) const {
    if (auto value = programs_.devices.get({slot_, index})) {
        value->encrypts = device.encrypts ? 1 : 0;
        (void)programs_.devices.put({slot_, index}, *value);
    }
}

void Hooks::detach(unsigned index, const Device& device) const {
    for (const std::string& pin : device.pins) {
        unpin(pin);
    }
    if (device.clsact) {
        clsact::detach(index, programs_.instance().number);
    }
    programs_.devices.erase({slot_, index});
}

Result<Hooks::State> Hooks::sync_devices() {
    const auto own = Rtnetlink::open();
    const InNamespace inside(netns_.get());
    const auto rtnetlink = inside.entered() ? Rtnetlink::open() : Result<Rtnetlink>(last_error("entering the netns"));
    const auto devices = rtnetlink ? rtnetlink->devices() : Result<std::vector<NetDevice>>(rtnetlink.error());
    if (!devices) {
        return devices.error();
    }
    if (auto loaded = load(); !loaded) {
        return loaded.error();
    }
    std::map<unsigned, const NetDevice*> present;
    for (const NetDevice& device : *devices) {
        if (!device.loopback) {
            present.emplace(device.index, &device);
        }
    }
    const auto gone = [&](const auto& entry) { return !present.contains(entry.first); };
    for (const auto& entry : devices_) {
        if (gone(entry)) {
            detach(entry.first, entry.second);
        }
    }
    std::erase_if(devices_, gone);
    unsigned fresh = 0;
    for (const auto& [index, found] : present) {
        auto& device = devices_[index];
        device.name = found->name;
        device.up = found->up;
        const bool now = present.size() <= kMostDevices && encrypts(*found, *devices);
        if (std::exchange(device.encrypts, now) != now) {
            tell_encrypts(index, device);  // a port came to a bridge, for instance
        }
        // A device that is down moves no packet, and many namespaces have devices that are never set up.
        if (!device.up || present.size() > kMostDevices || device.clsact || !device.pins.empty() ||
            !device.links.empty() || device.mac_len == kHeaderUnknown || (goes_on_ && !device.problem.empty()) ||
            fresh++ >= kFreshAtOnce) {
            continue;
        }
        device.mac_len = found->header ? *found->header : kHeaderUnknown;
        smc_device value{};
        value.mac_len = device.mac_len;
        value.encrypts = device.encrypts ? 1 : 0;
        random_bytes(reinterpret_cast<std::uint8_t*>(&value.probe), sizeof value.probe);
        if (auto put = programs_.devices.put({slot_, index}, value); !put) {
            device.problem = put.error().text();
            continue;
        }
        attach(index, device);
    }
    goes_on_ = fresh > kFreshAtOnce;
    if (!goes_on_) {
        if (own) {
            look_at_limits(*rtnetlink, *own, *devices);
            look_at_vlans(*rtnetlink, *own, *devices);
        }
        probe_all();
    }
    return conclude(goes_on_);
}

// An error leaves the limits as they were. A kernel without queueing disciplines answers with one, and has no limits.
void Hooks::look_at_limits(const Rtnetlink& there, const Rtnetlink& own, const std::vector<NetDevice>& devices) {
    probes_ = 0;
    if (withdrawn_) {
        return;  // limits concern new connections only, and the successor's programs would count as one
    }
    auto rules = device_rules(there, devices, own);
    if (!rules) {
        log()->debug("shapers and filters of devices could not be read: {}", rules.error().text());
        return;
    }
    for (auto& [index, device] : devices_) {
        const auto own_priority = device.clsact ? std::optional(clsact::kPriority) : std::nullopt;
        DeviceRules& found = (*rules)[index];
        found.tcx_behind = !tcx::position(out_.get(), index, true).value_or(tcx::Position{}).last;
        std::string limits = device.up ? limit_of(found, own_priority) : "";
        if (limits != device.limits && !limits.empty()) {
            log()->limited(
                LogLevel::kInfo,
                "device {}: {}, which SMC would evade: new connections of its network namespace are plain TCP, unless "
                "policy.past_limits allows SMC",
                device.name, limits);
        }
        device.limits = std::move(limits);
    }
}

// An error leaves the VLANs as they were.
void Hooks::look_at_vlans(const Rtnetlink& there, const Rtnetlink& own, const std::vector<NetDevice>& devices) {
    if (!options_.vlans) {
        return;
    }
    if (auto vlans = vlans_of(devices, own, there.netns_id(home_netns()))) {
        vlans_ = std::move(*vlans);
    } else {
        log()->debug("VLANs of devices: {}", vlans.error().text());
    }
}

}  // namespace smc::bpf
