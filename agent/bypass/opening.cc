// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/bypass/opening.h"

#include <algorithm>
#include <string_view>

#include "agent/log/log.h"

namespace smc::bypass {

Opened open_as_configured(const Config& config, std::uint64_t policy, int cgroup_fd,
                          std::vector<bpf::ProgramState>& states) {
    const auto anybody_has = [&](std::string_view word) {
        return config.bypass == word ||
               std::ranges::any_of(config.rules, [&](const Rule& rule) { return rule.bypass == word; });
    };
    Opened opened{.bypass = nullptr, .verdict = std::nullopt, .forced = anybody_has("force"), .mask = 0};
    const bool wanted = opened.forced || anybody_has("auto");
    if (!wanted && !Bypass::left_behind(config.pin_path)) {
        return opened;
    }
    auto bypass = Bypass::open(
        config.pin_path, {std::uint64_t{config.bypass_mib} << 20, config.cgroup_share, policy, cgroup_fd}, states);
    if (!bypass) {
        log()->warn("the bypass is not available: {}", bypass.error().text());
        return opened;
    }
    opened.bypass = std::move(*bypass);
    opened.bypass->set_off(!wanted);
    if (!wanted) {
        return opened;
    }
    if (!opened.bypass->knows_waiters()) {
        log()->info(
            "the bypass: the kernel hides addresses of its functions (CAP_SYSLOG, kernel.kptr_restrict): a socket that "
            "epoll or poll() waits for stays TCP, unless its program reads on after short reads");
    }
    opened.verdict = probe(*opened.bypass, config.times.trial);
    const bool fit = opened.verdict->obstacle.empty();
    log()->info("the bypass is {} for rules that say auto (the probe took {} us){}", fit ? "on" : "off",
                opened.verdict->took.count(), fit ? "" : ": " + opened.verdict->obstacle);
    if (!fit && opened.verdict->lasts && !opened.forced && !opened.bypass->has_members()) {
        unload(opened.bypass, states);
        return opened;
    }
    opened.mask = SMC_LOCAL_FORCE | (fit ? SMC_LOCAL_BYPASS : 0);
    return opened;
}

void unload(std::unique_ptr<Bypass>& bypass, std::vector<bpf::ProgramState>& states) {
    bypass.reset();
    std::ranges::for_each(states, [](bpf::ProgramState& state) { state.loaded = false; });
}

}  // namespace smc::bypass
