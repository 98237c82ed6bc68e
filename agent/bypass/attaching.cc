// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How the programs of the bypass get into the kernel: loaded or taken over, attached and pinned (B1).
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/bypass/bypass.h"
#include "agent/bypass/pins.h"
#include "agent/log/log.h"
#include "agent/steer/pins.h"
#include "agent/steer/programs.h"
#include "smc_bypass.skel.h"
#include "smc_guards.skel.h"

namespace smc::bypass {

namespace {

using ConfigMap = bpf::Map<std::uint32_t, smc_bypass_config>;

bool has_function(const char* name) {
    const std::unique_ptr<btf, decltype(&btf__free)> kernel(btf__load_vmlinux_btf(), &btf__free);
    return kernel && btf__find_by_name_kind(kernel.get(), name, BTF_KIND_FUNC) > 0;
}

}  // namespace

Result<void> Bypass::load(bool take_over) {
    const auto prepare = [&](smc_bypass& skeleton) -> Result<void> {
        bpf_map* map = nullptr;
        bpf_object__for_each_map(map, skeleton.obj) {
            const std::string name = bpf_map__name(map);
            if (!take_over || !bpf::is_to_be_pinned(name)) {
                continue;
            }
            const UniqueFd fd = pinned(path_, name);
            if (!fd || bpf_map__reuse_fd(map, fd.get()) != 0) {
                return last_error("taking over " + path_ + "/" + name);
            }
        }
        return {};
    };
    auto loaded = bpf::load_what_is_allowed<::smc_bypass>(smc_bypass__open, smc_bypass__load, smc_bypass__destroy,
                                                          prepare, bpf::bypass_programs(), states_);
    if (!loaded) {
        return loaded.error();
    }
    skeleton_ = std::move(*loaded);
    enrolling_ = bpf_program__attach_iter(skeleton_->progs.smc_bypass_enrol, nullptr);
    return enrolling_ != nullptr ? Result<void>() : Result<void>(refused("smc_bypass_enrol", errno));
}

Error Bypass::refused(const std::string& program, int error) const {
    bpf::leave_out(states_, program, error);
    return bpf::refusal("to attach or to run BPF program " + program, error);
}

Result<void> Bypass::attach_and_pin() const {
    if (::mkdir(path_.c_str(), 0700) != 0) {
        return last_error("creating " + path_);
    }
    bpf_map* map = nullptr;
    bpf_object__for_each_map(map, skeleton_->obj) {
        const std::string name = bpf_map__name(map);
        if (bpf::is_to_be_pinned(name) && bpf_map__pin(map, (path_ + "/" + name).c_str()) != 0) {
            return last_error("pinning " + name);
        }
    }
    const auto& programs = skeleton_->progs;
    if (bpf_prog_attach(bpf_program__fd(programs.smc_bypass_send), map_fd("smc_members"), BPF_SK_MSG_VERDICT, 0) != 0) {
        return refused("smc_bypass_send", errno);
    }
    for (const bpf_program* program : {programs.smc_bypass_received, programs.smc_bypass_sent}) {
        if (auto attached = pin(program, bpf_program__attach(program)); !attached) {
            return attached;
        }
    }
    if (bpf_program__pin(programs.smc_bypass_step, (path_ + "/smc_bypass_step").c_str()) != 0) {
        return last_error("pinning smc_bypass_step");  // an agent of another build runs it, see pins.cc
    }
    if (auto watched = watch_root(); !watched) {
        return watched;
    }
    set_guards();
    smc_bypass_config config{};
    config.identity.build = build();  // from here on all programs are in place
    config.policy = terms_.policy;
    return ConfigMap(map_fd("smc_bypass_config")).put(0, config);
}

// Attaches smc_bypass_reused to the applications' cgroup, unless an earlier agent has. One that had another cgroup.root
// has attached it there, where its members still need it.
Result<void> Bypass::watch_root() const {
    const bpf_program* program = skeleton_->progs.smc_bypass_reused;
    const std::string first = bpf_program__name(program);
    struct stat root {};
    if (::fstat(terms_.cgroup_fd, &root) != 0) {
        return last_error("looking at the root of the cgroups");
    }
    std::string name = first;
    while (const UniqueFd link = pinned(path_, name)) {
        bpf_link_info info{};
        __u32 size = sizeof info;
        if (bpf_obj_get_info_by_fd(link.get(), &info, &size) == 0 && info.cgroup.cgroup_id == root.st_ino) {
            return {};
        }
        name += '+';
    }
    return pin(program, bpf_program__attach_cgroup(program, terms_.cgroup_fd), name);
}

Result<void> Bypass::pin(const bpf_program* program, bpf_link* link) const {
    return pin(program, link, bpf_program__name(program));
}

Result<void> Bypass::pin(const bpf_program* program, bpf_link* link, const std::string& name) const {
    if (link == nullptr) {
        return refused(bpf_program__name(program), errno);
    }
    const bool kept = bpf_link__pin(link, (path_ + "/" + name).c_str()) == 0;
    const int error = errno;
    bpf_link__destroy(link);  // the pin keeps the program attached
    return kept ? Result<void>() : Error{error, "pinning " + name};
}

// Without a guard, applications may see more differences from TCP.
void Bypass::set_guards() const {
    const bool has_own_ioctl = has_function("tcp_bpf_ioctl");
    const auto prepare = [&](smc_guards& skeleton) -> Result<void> {
        bpf_map* map = nullptr;
        bpf_object__for_each_map(map, skeleton.obj) {
            const int ours = map_fd(bpf_map__name(map));
            if (ours >= 0 && bpf_map__reuse_fd(map, ours) != 0) {
                return last_error("sharing " + std::string(bpf_map__name(map)));
            }
        }
        bpf_program__set_autoload(skeleton.progs.smc_guard_member_ioctl, has_own_ioctl);
        bpf_program__set_autoload(skeleton.progs.smc_guard_permission, true);
        return {};
    };
    std::vector<bpf::ProgramState> states;
    const auto guards = bpf::load_what_is_allowed<smc_guards>(smc_guards__open, smc_guards__load, smc_guards__destroy,
                                                              prepare, bpf::guard_programs(), states);
    if (!guards) {
        log()->warn("the guards of the bypass are not loaded: {}", guards.error().text());
    }
    for (bpf::ProgramState& state : states) {
        const bpf_program* program =
            guards && state.loaded ? bpf_object__find_program_by_name((*guards)->obj, state.name.c_str()) : nullptr;
        if (program == nullptr) {
            continue;
        }
        if (auto attached = pin(program, bpf_program__attach(program)); !attached) {
            state.loaded = false;
            state.error = attached.error().code;
            log()->warn("BPF program {} is left out: {}; lost: {}", state.name, attached.error().text(), state.lost);
        }
    }
    states_.insert(states_.end(), states.begin(), states.end());
}

// Notes which guards an earlier agent has attached.
void Bypass::see_guards() const {
    for (const bpf::ProgramRow& row : bpf::guard_programs()) {
        const bool there = has_guard(row.name);
        const bool wanted = std::string_view(row.name) != "smc_guard_member_ioctl" || has_function("tcp_bpf_ioctl");
        const int error = there || !wanted ? 0 : ENOENT;
        states_.push_back({row.name, "attached by the previous agent", row.purpose, row.lost, there, error});
    }
}

bool Bypass::has_guard(const std::string& name) const {
    return std::filesystem::exists(path_ + "/" + name);
}

}  // namespace smc::bypass
