// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The state of the agent, as JSON. smcctl prints it; nothing here changes anything.
#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "agent/bypass/probe.h"
#include "agent/bypass/rounds.h"
#include "agent/config/config.h"
#include "agent/connections/connections.h"
#include "agent/control/admin.h"
#include "agent/kubernetes/node_pods.h"
#include "agent/netns/cgroups.h"
#include "agent/netns/namespaces.h"
#include "agent/policy/policy.h"
#include "agent/smcd/fabrics.h"
#include "agent/smcd/memory.h"
#include "agent/smcd/pool.h"
#include "agent/smcr/link_groups.h"
#include "agent/steer/programs.h"
#include "datapath/engine.h"
#include "os/clock.h"
#include "smc/group/smcd_groups.h"

namespace smc {

struct IntrospectionParts {
    const Config& config;
    const clc::LocalNode& node;
    const Policy& policy;
    const bpf::Programs& programs;
    const Cgroups& cgroups;
    const Namespaces& namespaces;
    const smcd::Fabrics& fabrics;
    const smcd::Memory& smcd_memory;
    const smcd::Pool& smcd_pool;
    const Connections& connections;
    const group::SmcdGroups& smcd_groups;
    const smcr::Devices& roce_devices;
    const smcr::LinkGroups& smcr_groups;
    Engines& engines;
    const std::unique_ptr<bypass::Bypass>& bypass;  // null: there is no bypass
    const std::vector<bpf::ProgramState>& bypass_programs;
    const std::unique_ptr<bypass::Rounds>& rounds;
    const std::optional<bypass::Verdict>& verdict;
    const Drain& drain;
    const std::unique_ptr<kubernetes::NodePods>& pods;  // null: no API server is configured
    std::function<std::string()> not_ready;  // why it does not serve, or its data path stands still; empty: neither
    std::function<std::string()> obstacle;   // why new connections are plain TCP; empty: they are not
};

class Introspection {
 public:
    explicit Introspection(const IntrospectionParts& parts) : p_(parts) {}

    // {"command": "status" | "connections" | "explain" | "linkgroups" | "devices" | "probe" | "bypass" | "events" |
    // "dry-run", ...}
    [[nodiscard]] nlohmann::json answer(const nlohmann::json& request) const;

    // The answer to the command "status", without the connections, which may be many.
    [[nodiscard]] nlohmann::json status() const;

    // status(), and the sums of each pod or control group, for the web page. Contains no addresses.
    [[nodiscard]] nlohmann::json overview() const;

 private:
    [[nodiscard]] nlohmann::json sums() const;
    [[nodiscard]] nlohmann::json served() const;
    [[nodiscard]] nlohmann::json ism() const;
    // The agent's connections, and those within this node that are tuned or bypassed. `ended`: the agent's last ended
    // ones instead.
    [[nodiscard]] nlohmann::json connections(bool ended) const;
    [[nodiscard]] nlohmann::json own_connections() const;
    [[nodiscard]] nlohmann::json link_groups() const;
    // Connections by link group and link.
    using Spread = std::map<std::uint32_t, std::map<std::uint8_t, unsigned>>;
    [[nodiscard]] Spread spread() const;
    [[nodiscard]] nlohmann::json links_of(const group::SmcrGroup& group, const Spread& spread) const;
    void update_link(nlohmann::json& connection, const SmcrView& view) const;
    [[nodiscard]] nlohmann::json devices() const;

    IntrospectionParts p_;
    std::chrono::steady_clock::time_point started_ = os::now();
};

}  // namespace smc
