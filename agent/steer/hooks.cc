// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/steer/hooks.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <system_error>
#include <utility>

#include "agent/log/log.h"
#include "agent/steer/device_limits.h"
#include "agent/steer/probe_packet.h"
#include "os/clock.h"
#include "os/in_namespace.h"
#include "os/random.h"

namespace smc::bpf {

namespace {

// Fixed handles, one for each instance, so that a restarted agent replaces the filters that a killed one left.
constexpr unsigned kClsactHandle = 0x534d;
constexpr unsigned kClsactPriority = 0x534d;

constexpr unsigned kFreshAtOnce = 4;

// tcx came with kernel 6.6 and libbpf 1.3; Debian 12 has libbpf 1.1, so the call is made by hand.
constexpr __u32 kTcxIngress = 46, kTcxEgress = 47;  // BPF_TCX_INGRESS, BPF_TCX_EGRESS
constexpr __u32 kFirst = 1U << 3;                   // BPF_F_BEFORE without a relative program

int create_tcx_link(int program_fd, unsigned device, __u32 attach_type, __u32 flags) {
    struct {
        __u32 prog_fd;
        __u32 target_ifindex;
        __u32 attach_type;
        __u32 flags;
        __u8 rest[48];  // relative position and expected revision: none
    } attributes{};
    attributes.prog_fd = static_cast<__u32>(program_fd);
    attributes.target_ifindex = device;
    attributes.attach_type = attach_type;
    attributes.flags = flags;
    return static_cast<int>(::syscall(SYS_bpf, BPF_LINK_CREATE, &attributes, sizeof attributes));
}

// The position of a program among the tcx programs of a device.
struct TcxPlace {
    bool attached = false;
    bool last = true;
};

// nullopt: the query failed, or the kernel has no tcx.
std::optional<TcxPlace> tcx_place(int program_fd, unsigned device, __u32 attach_type) {
    bpf_prog_info info{};
    __u32 size = sizeof info;
    std::array<__u32, 64> programs{};  // as many as there can be
    struct {
        __u32 target_ifindex;
        __u32 attach_type;
        __u32 query_flags;
        __u32 attach_flags;
        __u64 prog_ids;
        __u32 prog_cnt;
        __u8 rest[36];
    } attributes{};
    attributes.target_ifindex = device;
    attributes.attach_type = attach_type;
    attributes.prog_ids = reinterpret_cast<__u64>(programs.data());
    attributes.prog_cnt = programs.size();
    if (bpf_obj_get_info_by_fd(program_fd, &info, &size) != 0) {
        return std::nullopt;
    }
    if (::syscall(SYS_bpf, BPF_PROG_QUERY, &attributes, sizeof attributes) != 0) {
        return errno == ENOENT ? std::optional(TcxPlace{}) : std::nullopt;  // ENOENT: no program at all
    }
    const auto end = programs.begin() + std::min<std::ptrdiff_t>(attributes.prog_cnt, programs.size());
    const auto ours = std::find(programs.begin(), end, info.id);
    return TcxPlace{ours != end, ours == end || ours + 1 == end};
}

bpf_tc_hook clsact_hook(unsigned device, bpf_tc_attach_point point) {
    bpf_tc_hook hook{};
    hook.sz = sizeof hook;
    hook.ifindex = static_cast<int>(device);
    hook.attach_point = point;
    return hook;
}

bpf_tc_opts clsact_options(unsigned number) {
    bpf_tc_opts options{};
    options.sz = sizeof options;
    options.handle = kClsactHandle + number;
    options.priority = kClsactPriority;
    return options;
}

// False: the device has no clsact qdisc.
bool detach_clsact(unsigned device, unsigned number) {
    bool has_qdisc = true;
    for (const auto point : {BPF_TC_INGRESS, BPF_TC_EGRESS}) {
        auto hook = clsact_hook(device, point);
        auto options = clsact_options(number);
        has_qdisc = has_qdisc && bpf_tc_detach(&hook, &options) != -EINVAL;
    }
    return has_qdisc;
}

constexpr auto kHeaderUnknown = std::uint32_t(-1);

}  // namespace

Result<void> Hooks::load() {
    if (packets_) {
        return {};
    }
    auto out = programs_.stamped(Programs::Stamped::kOut, slot_);
    auto in = programs_.stamped(Programs::Stamped::kIn, slot_);
    auto lookup = programs_.stamped(Programs::Stamped::kLookup, slot_);
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
        if (!detach_clsact(index, number)) {
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
            log()->warn(
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

// At egress behind all other programs, at ingress in front of all others.
Result<void> Hooks::attach_tcx(unsigned index, Device& device) const {
    for (const bool out : {true, false}) {
        if (auto attached = attach_tcx(index, device, out); !attached) {
            return attached;
        }
    }
    return {};
}

Result<void> Hooks::attach_tcx(unsigned index, Device& device, bool out) const {
    UniqueFd link(
        create_tcx_link(out ? out_.get() : in_.get(), index, out ? kTcxEgress : kTcxIngress, out ? 0 : kFirst));
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
    auto both = clsact_hook(index, static_cast<bpf_tc_attach_point>(BPF_TC_INGRESS | BPF_TC_EGRESS));
    if (const int rc = bpf_tc_hook_create(&both); rc != 0 && rc != -EEXIST) {
        return Error{-rc, "creating a clsact qdisc on " + device.name};
    }
    for (const auto point : {BPF_TC_INGRESS, BPF_TC_EGRESS}) {
        auto hook = clsact_hook(index, point);
        auto options = clsact_options(programs_.instance().number);
        options.prog_fd = point == BPF_TC_EGRESS ? out_.get() : in_.get();
        options.flags = BPF_TC_F_REPLACE;
        if (const int rc = bpf_tc_attach(&hook, &options); rc != 0) {
            return Error{-rc, "attaching to " + device.name + " by clsact"};
        }
    }
    return {};
}

// Attaches programs again that somebody has detached: by deleting the qdisc that they were attached to, the pins of
// their links, or the links themselves. With clsact they are attached in any case. False: nothing was attached.
bool Hooks::attach_again(unsigned index, Device& device) const {
    if (device.clsact) {
        return attach_clsact(index, device).has_value();
    }
    bool any = false;
    for (const bool out : {true, false}) {
        const auto place = tcx_place(out ? out_.get() : in_.get(), index, out ? kTcxEgress : kTcxIngress);
        if (place && !place->attached) {
            const auto attached = attach_tcx(index, device, out);
            any |= attached.has_value();
            const std::string why = attached ? "" : attached.error().text();  // then the next probe tries again
            if (why != device.detached && !why.empty()) {
                log()->warn("device {}: programs that had been removed could not be attached again: {}", device.name,
                            why);
            }
            device.detached = why;
        }
    }
    if (any) {
        log()->warn("device {}: programs are attached again: they, or their pins in {}, had been removed", device.name,
                    programs_.pins());
    }
    return any;
}

void Hooks::detach(unsigned index, const Device& device) const {
    for (const std::string& pin : device.pins) {
        unpin(pin);
    }
    if (device.clsact) {
        detach_clsact(index, programs_.instance().number);
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
        // A device that is down moves no packet, and many namespaces have devices that are never set up.
        if (!device.up || present.size() > kMostDevices || device.clsact || !device.pins.empty() ||
            !device.links.empty() || device.mac_len == kHeaderUnknown || (goes_on_ && !device.problem.empty()) ||
            fresh++ >= kFreshAtOnce) {
            continue;
        }
        device.mac_len = found->header ? *found->header : kHeaderUnknown;
        smc_device value{};
        value.mac_len = device.mac_len;
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
        log()->debug("limits of devices: {}", rules.error().text());
        return;
    }
    for (auto& [index, device] : devices_) {
        const auto own_priority = device.clsact ? std::optional(kClsactPriority) : std::nullopt;
        DeviceRules& found = (*rules)[index];
        found.tcx_behind = !tcx_place(out_.get(), index, kTcxEgress).value_or(TcxPlace{}).last;
        std::string limits = device.up ? limit_of(found, own_priority) : "";
        if (limits != device.limits && !limits.empty()) {
            log()->info(
                "device {}: without policy.past_limits new connections are plain TCP: {}, which SMC would evade",
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
