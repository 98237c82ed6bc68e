// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Loads a BPF object without the programs that the kernel refuses. The purpose of each program: bpf/programs.h.
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

// Whether a program was loaded, and why not.
struct ProgramState {
    std::string name;
    std::string hook;     // its section: "sockops", "tp_btf/tcp_destroy_sock"
    std::string purpose;  // "": not a program but a helper that programs call
    std::string lost;
    bool loaded = false;
    int error = 0;  // an errno value: the kernel has refused it; 0 and not loaded: it has no use here
};

// Marks a program that was loaded but cannot be attached or run, and logs that once.
void leave_out(std::vector<ProgramState>& states, const std::string& name, int error);

// Whether a program may read the kernel's memory: lockdown=confidentiality forbids it.
[[nodiscard]] bool may_read_kernel();

// The Error "the kernel refuses `what` (what may forbid it: ...)", with the causes that can be seen on this system.
[[nodiscard]] Error refusal(const std::string& what, int error);

// Opens an object and sets what its user wants (maps, constants, programs that have a use), but does not load it.
using OpenObject = std::function<Result<std::shared_ptr<bpf_object>>()>;

// Finds out which programs of an object the kernel takes. Adds each program that is loaded or refused to `states`.
class Fitting {
 public:
    Fitting(std::span<const ProgramRow> rows, std::vector<ProgramState>& states) : rows_(rows), states_(states) {}

    // To be called before the object is loaded: sets the type of programs that user space runs, and leaves out those
    // that were refused.
    void prepare(bpf_object* object) const;
    // To be called if loading the object failed: tries each program by itself. An Error: another attempt is useless.
    Result<void> find_refused(const OpenObject& open);
    // To be called when the object is loaded.
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

// `prepare` sets what the user of the object wants. The skeleton that comes back is loaded; its last owner destroys it.
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
