// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Loads a BPF object without what the kernel refuses of it. What each program is for: bpf/programs.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "os/result.h"

struct bpf_object;
struct bpf_program;

namespace smc::bpf {

enum class Need : std::uint8_t { kNeeded, kPart, kRunNeeded, kRunPart };

// A row of bpf/programs.h.
struct ProgramRow {
    const char* name;
    Need need;
    const char* purpose;
    const char* lost;  // without it
};
std::span<const ProgramRow> gateway_programs();
std::span<const ProgramRow> bypass_programs();
std::span<const ProgramRow> guard_programs();

// What has become of it.
struct ProgramState {
    std::string name;
    std::string hook;     // its section: "sockops", "tp_btf/tcp_destroy_sock"
    std::string purpose;  // "" for what is no program, but a helper that programs have called
    std::string lost;
    bool loaded = false;
    int error = 0;  // an errno value: the kernel has refused it; 0 and not loaded: it has no use here
};

// It was loaded, and cannot be attached or run. The log is told once.
void leave_out(std::vector<ProgramState>& states, const std::string& name, int error);

// Whether a program may read the kernel's memory: lockdown=confidentiality forbids it.
[[nodiscard]] bool may_read_kernel();

// "smc_lookup (sk_lookup) is refused; what may forbid it: ...", with what of this can be seen here and now.
[[nodiscard]] Error refusal(const std::string& what, int error);

// An object that nobody has loaded yet, with all set that its user wants: maps, constants, programs that have a use.
using OpenObject = std::function<Result<std::shared_ptr<bpf_object>>()>;

// What the first attempt to load it made of it. `states` is told of each program that is loaded or refused.
class Fitting {
 public:
    Fitting(std::span<const ProgramRow> rows, std::vector<ProgramState>& states) : rows_(rows), states_(states) {}

    // Before it is loaded: programs that user space runs have their type, those that are refused are left out.
    void prepare(bpf_object* object) const;
    // It could not be loaded. Tries each program by itself. An Error: there is no use in another attempt.
    Result<void> find_refused(const OpenObject& open);
    // It is loaded.
    void conclude(bpf_object* object);

 private:
    [[nodiscard]] int try_alone(const OpenObject& open, const std::string& name, bool as_syscall) const;
    [[nodiscard]] Error find_refused_map(const OpenObject& open, const bpf_object* all) const;
    [[nodiscard]] const ProgramRow* row_of(const std::string& name) const;
    void note(const bpf_program* program, int error);

    std::span<const ProgramRow> rows_;
    std::vector<ProgramState>& states_;
    std::set<std::string> refused_, not_as_syscall_;
};

// `prepare`: as OpenObject says. The skeleton that comes back is loaded; it goes with its last owner.
template <class Skeleton>
Result<std::shared_ptr<Skeleton>> load_what_is_allowed(Skeleton* (*open)(), int (*load)(Skeleton*),
                                                       void (*destroy)(Skeleton*),
                                                       const std::function<Result<void>(Skeleton&)>& prepare,
                                                       std::span<const ProgramRow> rows,
                                                       std::vector<ProgramState>& states) {
    const auto opened = [&]() -> Result<std::shared_ptr<Skeleton>> {
        std::shared_ptr<Skeleton> skeleton(open(), destroy);
        if (!skeleton) {
            return last_error("opening a BPF object");
        }
        const auto prepared = prepare(*skeleton);
        return prepared ? Result<std::shared_ptr<Skeleton>>(std::move(skeleton)) : prepared.error();
    };
    const OpenObject opened_object = [&]() -> Result<std::shared_ptr<bpf_object>> {
        auto skeleton = opened();
        return skeleton ? Result<std::shared_ptr<bpf_object>>(std::shared_ptr<bpf_object>(*skeleton, (*skeleton)->obj))
                        : skeleton.error();
    };
    Fitting fitting(rows, states);
    for (const bool first : {true, false}) {
        auto skeleton = opened();
        if (!skeleton) {
            return skeleton;
        }
        fitting.prepare((*skeleton)->obj);
        const int rc = load(skeleton->get());
        if (rc == 0) {
            fitting.conclude((*skeleton)->obj);
            return skeleton;
        }
        if (!first) {
            return Error{-rc, "loading the BPF programs that are left"};
        }
        if (auto found = fitting.find_refused(opened_object); !found) {
            return found.error();
        }
    }
    return Error{EINVAL, "loading BPF programs"};
}

}  // namespace smc::bpf
