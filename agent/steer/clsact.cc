// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/steer/clsact.h"

#include <bpf/libbpf.h>

#include <cerrno>

namespace smc::bpf::clsact {

namespace {

constexpr unsigned kHandle = 0x534d;

bpf_tc_hook hook_of(unsigned device, bpf_tc_attach_point point) {
    bpf_tc_hook hook{};
    hook.sz = sizeof hook;
    hook.ifindex = static_cast<int>(device);
    hook.attach_point = point;
    return hook;
}

bpf_tc_opts options_of(unsigned instance) {
    bpf_tc_opts options{};
    options.sz = sizeof options;
    options.handle = kHandle + instance;
    options.priority = kPriority;
    return options;
}

}  // namespace

Result<void> attach(unsigned device, unsigned instance, int out_fd, int in_fd) {
    auto both = hook_of(device, static_cast<bpf_tc_attach_point>(BPF_TC_INGRESS | BPF_TC_EGRESS));
    if (const int rc = bpf_tc_hook_create(&both); rc != 0 && rc != -EEXIST) {
        return Error{-rc, "creating a clsact qdisc"};
    }
    for (const auto point : {BPF_TC_INGRESS, BPF_TC_EGRESS}) {
        auto hook = hook_of(device, point);
        auto options = options_of(instance);
        options.prog_fd = point == BPF_TC_EGRESS ? out_fd : in_fd;
        options.flags = BPF_TC_F_REPLACE;
        if (const int rc = bpf_tc_attach(&hook, &options); rc != 0) {
            return Error{-rc, "attaching by clsact"};
        }
    }
    return {};
}

bool detach(unsigned device, unsigned instance) {
    bool has_qdisc = true;
    for (const auto point : {BPF_TC_INGRESS, BPF_TC_EGRESS}) {
        auto hook = hook_of(device, point);
        auto options = options_of(instance);
        has_qdisc = has_qdisc && bpf_tc_detach(&hook, &options) != -EINVAL;
    }
    return has_qdisc;
}

}  // namespace smc::bpf::clsact
