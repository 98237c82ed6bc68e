// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/steer/inbound.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/syscall.h>

#include "agent/log/log.h"
#include "smc_inbound.skel.h"

namespace smc::bpf {

namespace {

// A fixed place, so that a restart replaces what a killed agent left.
constexpr unsigned kClsactHandle = 0x534d;
constexpr unsigned kClsactPriority = 0x534d;

// tcx came with kernel 6.6 and libbpf 1.3; Debian 12 has libbpf 1.1, so the call is made by hand.
constexpr __u32 kTcxIngress = 46;  // BPF_TCX_INGRESS

int create_tcx_link(int program_fd, unsigned device) {
    struct {
        __u32 prog_fd;
        __u32 target_ifindex;
        __u32 attach_type;
        __u32 flags;
        __u8 rest[48];  // relative position and expected revision: none
    } attributes{};
    attributes.prog_fd = static_cast<__u32>(program_fd);
    attributes.target_ifindex = device;
    attributes.attach_type = kTcxIngress;
    return static_cast<int>(::syscall(SYS_bpf, BPF_LINK_CREATE, &attributes, sizeof attributes));
}

bpf_tc_hook clsact_hook(unsigned device) {
    bpf_tc_hook hook{};
    hook.sz = sizeof hook;
    hook.ifindex = static_cast<int>(device);
    hook.attach_point = BPF_TC_INGRESS;
    return hook;
}

bpf_tc_opts clsact_place() {
    bpf_tc_opts options{};
    options.sz = sizeof options;
    options.handle = kClsactHandle;
    options.priority = kClsactPriority;
    return options;
}

}  // namespace

Result<std::unique_ptr<Inbound>> Inbound::load(const Programs& programs, std::uint32_t slot, int netns_fd,
                                               const std::string& tc, const std::vector<NetDevice>& devices) {
    std::unique_ptr<Inbound> inbound(new Inbound);
    inbound->tc_ = tc == "tcx" ? Tc::kTcx : tc == "clsact" ? Tc::kClsact : Tc::kAuto;
    inbound->skeleton_ = smc_inbound__open();
    if (inbound->skeleton_ == nullptr) {
        return last_error("opening the inbound BPF object");
    }
    inbound->skeleton_->rodata->smc_slot = slot;
    bpf_map* map = nullptr;
    bpf_object__for_each_map(map, inbound->skeleton_->obj) {
        if (const int fd = programs.map_fd(bpf_map__name(map)); fd >= 0) {
            if (bpf_map__reuse_fd(map, fd) != 0) {
                return last_error(std::string("sharing map ") + bpf_map__name(map));
            }
        }
    }
    if (const int rc = smc_inbound__load(inbound->skeleton_); rc != 0) {
        return Error{-rc, "loading the inbound BPF programs"};
    }
    inbound->lookup_ = bpf_program__attach_netns(inbound->skeleton_->progs.smc_lookup, netns_fd);
    if (inbound->lookup_ == nullptr) {
        return last_error("attaching sk_lookup");
    }
    inbound->sync_devices(devices);
    return inbound;
}

Inbound::~Inbound() {
    for (const auto& [index, device] : devices_) {
        if (!device.tcx_link) {
            auto hook = clsact_hook(index);
            auto place = clsact_place();
            bpf_tc_detach(&hook, &place);
        }
    }
    bpf_link__destroy(lookup_);
    smc_inbound__destroy(skeleton_);
}

Result<void> Inbound::attach_device(unsigned index, const std::string& name) {
    const int program = bpf_program__fd(skeleton_->progs.smc_ingress);
    auto hook = clsact_hook(index);
    auto place = clsact_place();
    bpf_tc_detach(&hook, &place);  // of an agent that was killed
    place = clsact_place();
    if (tc_ != Tc::kClsact) {
        UniqueFd link(create_tcx_link(program, index));
        if (link) {
            devices_[index] = {name, std::move(link)};
            return {};
        }
        if (tc_ == Tc::kTcx) {
            return last_error("attaching to " + name + " by tcx");
        }
    }
    if (const int rc = bpf_tc_hook_create(&hook); rc != 0 && rc != -EEXIST) {
        return Error{-rc, "creating a clsact qdisc on " + name};
    }
    place.prog_fd = program;
    place.flags = BPF_TC_F_REPLACE;
    if (const int rc = bpf_tc_attach(&hook, &place); rc != 0) {
        return Error{-rc, "attaching to " + name + " by clsact"};
    }
    devices_[index] = {name, UniqueFd()};
    return {};
}

void Inbound::sync_devices(const std::vector<NetDevice>& devices) {
    std::map<unsigned, std::string> present;
    for (const NetDevice& device : devices) {
        if (!device.loopback) {
            present.emplace(device.index, device.name);
        }
    }
    std::erase_if(devices_, [&](const auto& device) { return !present.contains(device.first); });
    for (const auto& [index, name] : present) {
        if (!devices_.contains(index)) {
            if (auto attached = attach_device(index, name); !attached) {
                log()->warn("device {} is not watched for SMC clients: {}", name, attached.error().text());
            }
        }
    }
}

std::vector<std::string> Inbound::devices() const {
    std::vector<std::string> names;
    for (const auto& [index, device] : devices_) {
        names.push_back(device.name);
    }
    return names;
}

}  // namespace smc::bpf
