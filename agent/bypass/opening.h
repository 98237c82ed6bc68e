// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Whether there is a bypass, as the configuration, what an agent before has left, and the kernel decide.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "agent/bypass/bypass.h"
#include "agent/bypass/probe.h"
#include "agent/config/config.h"

namespace smc::bypass {

struct Opened {
    std::unique_ptr<Bypass> bypass;  // nullptr: there is none, and the agent serves without it
    std::optional<Verdict> verdict;  // of the kernel, if it was tried
    bool forced = false;             // somebody has it whatever the verdict is
    std::uint32_t mask = 0;          // enum smc_local: what connections may have of it
};

// `policy`: a hash; `cgroup_fd`: of the tree. `states` is told of each program, and outlives the bypass.
[[nodiscard]] Opened open_as_configured(const Config& config, std::uint64_t policy, int cgroup_fd,
                                        std::vector<bpf::ProgramState>& states);
// Nobody could have it, and each receive of the node would pass by its programs.
void unload(std::unique_ptr<Bypass>& bypass, std::vector<bpf::ProgramState>& states);

}  // namespace smc::bypass
