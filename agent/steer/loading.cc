// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/steer/loading.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <system_error>

#include "agent/log/log.h"
#include "bpf/programs.h"
#include "os/unique_fd.h"

namespace smc::bpf {

namespace {

constexpr Need NEEDED = Need::kNeeded, PART = Need::kPart, RUN_NEEDED = Need::kRunNeeded, RUN_PART = Need::kRunPart;

#define SMC_ROW(name, need, purpose, lost) ProgramRow{#name, need, purpose, lost},
constexpr ProgramRow kGateway[] = {SMC_GATEWAY_PROGRAMS(SMC_ROW)};
constexpr ProgramRow kBypass[] = {SMC_BYPASS_PROGRAMS(SMC_ROW)};
constexpr ProgramRow kGuards[] = {SMC_GUARD_PROGRAMS(SMC_ROW)};
#undef SMC_ROW

bool is_run(Need need) {
    return need == Need::kRunNeeded || need == Need::kRunPart;
}

bool is_needed(Need need) {
    return need == Need::kNeeded || need == Need::kRunNeeded;
}

std::string first_line(const char* path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

// "none [integrity] confidentiality" -> "integrity"; empty if the kernel does not tell.
std::string lockdown() {
    const std::string modes = first_line("/sys/kernel/security/lockdown");
    const auto open = modes.find('['), close = modes.find(']');
    return open != std::string::npos && close != std::string::npos ? modes.substr(open + 1, close - open - 1) : "";
}

std::vector<std::string> missing_capabilities() {
    constexpr std::array<std::pair<unsigned, const char*>, 3> kWanted{
        {{CAP_BPF, "CAP_BPF"}, {CAP_PERFMON, "CAP_PERFMON"}, {CAP_NET_ADMIN, "CAP_NET_ADMIN"}}};
    std::ifstream status("/proc/self/status");
    std::vector<std::string> missing;
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with("CapEff:")) {
            const std::uint64_t effective = std::stoull(line.substr(7), nullptr, 16);
            for (const auto& [bit, name] : kWanted) {
                if ((effective & std::uint64_t{1} << CAP_SYS_ADMIN) == 0 &&
                    (effective & std::uint64_t{1} << bit) == 0) {
                    missing.emplace_back(name);
                }
            }
        }
    }
    return missing;
}

std::string what_may_forbid(int error) {
    std::vector<std::string> causes;
    if (const auto missing = missing_capabilities(); !missing.empty()) {
        causes.push_back(fmt::format("{} is missing", fmt::join(missing, ", ")));
    }
    if (const std::string mode = lockdown(); !mode.empty() && mode != "none") {
        causes.push_back("lockdown is " + mode);
    }
    if (::access("/sys/kernel/btf/vmlinux", R_OK) != 0) {
        causes.emplace_back("there is no BTF (/sys/kernel/btf/vmlinux)");
    }
    if (error == ENOMEM || error == E2BIG) {
        causes.emplace_back("memory.max of the agent's cgroup, or its memlock limit");
    } else if (error == EPERM || error == EACCES) {
        const std::string modules = first_line("/sys/kernel/security/lsm");
        causes.push_back("a seccomp filter, or a security module" + (modules.empty() ? "" : " (" + modules + ")"));
    } else {
        causes.emplace_back("a kernel that is too old for it, or built without it");
    }
    return fmt::format("{}", fmt::join(causes, "; "));
}

std::string hook_of(const bpf_program* program) {
    std::string section = bpf_program__section_name(program);
    return section.starts_with('?') ? section.substr(1) : section;
}

}  // namespace

std::span<const ProgramRow> gateway_programs() {
    return kGateway;
}

std::span<const ProgramRow> bypass_programs() {
    return kBypass;
}

std::span<const ProgramRow> guard_programs() {
    return kGuards;
}

// libbpf's own probe is not used, because it searches the verifier's message, whose words change.
bool may_read_kernel() {
    const bpf_insn code[] = {
        {BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_1, BPF_REG_10, 0, 0},
        {BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_1, 0, 0, -8},
        {BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_2, 0, 0, 8},
        {BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_3, 0, 0, 0},
        {BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_probe_read_kernel},
        {BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 0},
        {BPF_JMP | BPF_EXIT, 0, 0, 0, 0},
    };
    const UniqueFd fd(
        bpf_prog_load(BPF_PROG_TYPE_SCHED_CLS, "smc_try_read", "Dual BSD/GPL", code, std::size(code), nullptr));
    return static_cast<bool>(fd);
}

Error refusal(const std::string& what, int error) {
    return {error, fmt::format("the kernel refuses {} (what may forbid it: {})", what, what_may_forbid(error))};
}

void leave_out(std::vector<ProgramState>& states, const std::string& name, int error) {
    const auto state = std::ranges::find(states, name, &ProgramState::name);
    if (state != states.end() && state->loaded) {
        state->loaded = false;
        state->error = error;
        log()->warn("BPF program {} ({}) is left out: {}; lost: {}", name, state->hook,
                    std::generic_category().message(error), state->lost);
    }
}

const ProgramRow* Fitting::row_of(const std::string& name) const {
    const auto row = std::ranges::find_if(rows_, [&](const ProgramRow& one) { return one.name == name; });
    return row != rows_.end() ? &*row : nullptr;
}

void Fitting::prepare(bpf_object* object) const {
    bpf_program* program = nullptr;
    bpf_object__for_each_program(program, object) {
        const std::string name = bpf_program__name(program);
        const ProgramRow* row = row_of(name);
        if (refused_.contains(name)) {
            bpf_program__set_autoload(program, false);
        } else if (row != nullptr && is_run(row->need) && !not_as_syscall_.contains(name)) {
            bpf_program__set_type(program, BPF_PROG_TYPE_SYSCALL);
            bpf_program__set_flags(program, BPF_F_SLEEPABLE);
        }
    }
}

int Fitting::try_alone(const OpenObject& open, const std::string& name, bool as_syscall) const {
    const auto object = open();
    if (!object) {
        return object.error().code;
    }
    bpf_program* program = nullptr;
    bpf_object__for_each_program(program, object->get()) {
        const bool it = name == bpf_program__name(program);
        bpf_program__set_autoload(program, it);
        if (it && as_syscall) {
            bpf_program__set_type(program, BPF_PROG_TYPE_SYSCALL);
            bpf_program__set_flags(program, BPF_F_SLEEPABLE);
        }
    }
    return -bpf_object__load(object->get());
}

Error Fitting::find_refused_map(const OpenObject& open, const bpf_object* all) const {
    const bpf_map* map = nullptr;
    bpf_object__for_each_map(map, all) {
        const auto object = open();
        if (!object) {
            return object.error();
        }
        bpf_program* program = nullptr;
        bpf_object__for_each_program(program, object->get()) {
            bpf_program__set_autoload(program, false);
        }
        bpf_map* other = nullptr;
        bpf_object__for_each_map(other, object->get()) {
            bpf_map__set_autocreate(other, std::string_view(bpf_map__name(other)) == bpf_map__name(map));
        }
        if (const int rc = bpf_object__load(object->get()); rc != 0) {
            return refusal(
                fmt::format("BPF map {} ({})", bpf_map__name(map), libbpf_bpf_map_type_str(bpf_map__type(map))), -rc);
        }
    }
    return {EINVAL, "creating the BPF maps"};
}

Result<void> Fitting::find_refused(const OpenObject& open) {
    const auto object = open();
    if (!object) {
        return object.error();
    }
    if (try_alone(open, "", false) != 0) {
        return find_refused_map(open, object->get());
    }
    const bpf_program* needed = nullptr;
    int why = 0;
    bpf_program* program = nullptr;
    bpf_object__for_each_program(program, object->get()) {
        const std::string name = bpf_program__name(program);
        const ProgramRow* row = row_of(name);
        if (!bpf_program__autoload(program)) {
            continue;
        }
        const bool run = row != nullptr && is_run(row->need);
        int error = try_alone(open, name, run);
        if (error != 0 && run && try_alone(open, name, false) == 0) {
            log()->info("BPF program {} runs as type sched_cls, because the kernel refuses it as type syscall: {}",
                        name, std::generic_category().message(error));
            not_as_syscall_.insert(name);
            error = 0;
        }
        if (error == 0) {
            continue;
        }
        note(program, error);
        refused_.insert(name);
        if (row == nullptr || is_needed(row->need)) {
            needed = needed != nullptr ? needed : program;
            why = why != 0 ? why : error;
        } else {
            log()->warn("BPF program {} ({}) is left out: {}; lost: {}", name, hook_of(program),
                        std::generic_category().message(error), row->lost);
        }
    }
    if (needed == nullptr) {
        return {};
    }
    return refusal(fmt::format("BPF program {} ({}), without which the others are useless", bpf_program__name(needed),
                               hook_of(needed)),
                   why);
}

void Fitting::note(const bpf_program* program, int error) {
    const std::string name = bpf_program__name(program);
    const ProgramRow* row = row_of(name);
    states_.push_back({name, hook_of(program), row != nullptr ? row->purpose : "", row != nullptr ? row->lost : "",
                       bpf_program__fd(program) >= 0, error});
}

void Fitting::conclude(bpf_object* object) {
    bpf_program* program = nullptr;
    bpf_object__for_each_program(program, object) {
        if (!refused_.contains(bpf_program__name(program))) {
            note(program, 0);
        }
    }
}

}  // namespace smc::bpf
