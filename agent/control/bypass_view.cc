// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/control/bypass_view.h"

#include <nlohmann/json.hpp>

#include "agent/control/describe.h"
#include "agent/steer/addresses.h"
#include "smc/wire/reason.h"

namespace smc {

using nlohmann::json;

json describe(const std::optional<bypass::Verdict>& verdict) {
    if (!verdict) {
        return {{"tried", false}};
    }
    json findings = json::array();
    for (const bypass::Finding& one : verdict->findings) {
        findings.push_back({{"what", one.what}, {"difference", one.difference}, {"excluded", one.excluded}});
    }
    return {{"tried", true},
            {"automatic", verdict->obstacle.empty()},
            {"obstacle", verdict->obstacle},
            {"took_us", verdict->took.count()},
            {"findings", findings}};
}

json describe(const bypass::Bypass* bypass, const bypass::Rounds* rounds) {
    if (bypass == nullptr) {
        return {{"available", false}};
    }
    const smc_bypass_step& state = bypass->state();
    const smc_bypass_config limits = bypass->limits();
    return {{"available", true},
            {"off", limits.identity.off != 0},
            {"pins", bypass->pins()},
            {"taken_over", bypass->taken_over()},
            {"sockets",
             {{"watched", state.watched}, {"members", state.members}, {"leaving", state.leaving}, {"out", state.out}}},
            {"rounds", rounds != nullptr ? rounds->count() : 0},
            {"namespaces_held_up", rounds != nullptr ? rounds->held_up() : 0},
            {"redirected_bytes", state.redirected},
            {"redirected_messages", state.messages},
            {"backlog_bytes", state.backlog},
            {"limits",
             {{"bytes", limits.limit},
              {"messages", limits.messages},
              {"members", limits.max_members},
              {"cgroup_members", limits.max_cgroup_members}}}};
}

json describe(const bypass::Bypass::Listed& listed) {
    const smc_member& member = listed.member;
    const Endpoint local = local_of(member.app), remote = remote_of(member.app);
    const bool client = member.client != 0;
    return {{"id", listed.cookie},
            {"role", client ? "client" : "server"},
            {"path", "bypass"},
            {"reason", describe(Reason::kNone)},
            {"detail", ""},
            {"client", (client ? local : remote).text()},
            {"server", (client ? remote : local).text()},
            {"netns", member.inode},
            {"state", "established"},
            {"bytes_sent", listed.sent},
            {"bytes_received", member.consumed},
            {"redirected_bytes", member.redirected}};
}

}  // namespace smc
