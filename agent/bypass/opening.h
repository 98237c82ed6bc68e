// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Decides whether there is a bypass: from the configuration, the pins of an earlier agent, and the kernel.
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
    std::unique_ptr<Bypass> bypass;  // nullptr: the agent runs without a bypass
    std::optional<Verdict> verdict;  // of the probe, if it was run
    bool forced = false;             // a rule wants the bypass whatever the verdict is
    std::uint32_t mask = 0;          // enum smc_local: the kinds of bypass that connections may have
};

// `policy`: hash of the settings that decide which connections may be bypassed; `cgroup_fd`: root of the applications'
// cgroups. Adds each program to `states`, which must outlive the bypass.
[[nodiscard]] Opened open_as_configured(const Config& config, std::uint64_t policy, int cgroup_fd,
                                        std::vector<bpf::ProgramState>& states);
// Unloads a bypass that no connection may have: its programs would run at each receive of the node.
void unload(std::unique_ptr<Bypass>& bypass, std::vector<bpf::ProgramState>& states);

}  // namespace smc::bypass
