// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The object graph of a running agent: what main() starts and stops.
#pragma once

#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "agent/bypass/opening.h"
#include "agent/bypass/rounds.h"
#include "agent/control/admin.h"
#include "agent/control/control_server.h"
#include "agent/control/introspection.h"
#include "agent/gateway/gateway.h"
#include "agent/kubernetes/node_pods.h"
#include "agent/loop/standstill.h"
#include "agent/system_limits.h"
#include "agent/upgrade/departure.h"
#include "agent/upgrade/instance.h"
#include "agent/web/kept.h"
#include "agent/web/site.h"
#include "agent/web/web_server.h"
#include "os/lock_file.h"

namespace smc {

class Agent {
 public:
    // `take_over`: ask the agent that serves to leave. `ready_fd`: a byte is written to it when this agent serves.
    explicit Agent(Config config, bool take_over = false, UniqueFd ready_fd = UniqueFd());

    // Does everything up to serving. After an Error nothing is left behind.
    Result<void> start();
    // Runs until the agent is stopped, or has left and its last connection has ended.
    void run();

 private:
    Result<void> take_over_from_predecessor();
    Result<void> open_control();
    Result<void> open_fabrics();
    Result<void> start_bpf(const std::string& root, const std::string& own);
    void make_parts(const std::string& root, const std::string& own);
    Result<void> begin(int root_cgroup_fd, int own_cgroup_fd);
    [[nodiscard]] bpf::LocalParts open_bypass(int root_cgroup_fd);
    void bypass_tried(const bypass::Verdict& verdict, bool last);
    void unload_bypass();
    void listen_to_programs();
    void handle(const smc_event& event);
    [[nodiscard]] nlohmann::json answer(const nlohmann::json& request, const ControlServer::Who& who);
    void restore_files();
    void beat();
    void say_that_it_serves() const;
    void take_signals();
    void wait_for_signals();
    void hand_over();
    void lose_peer(const smcd::Peer& peer);
    void pods_changed();
    void tell_programs() const;
    // Why new connections are plain TCP; empty: they may use SMC.
    [[nodiscard]] std::string obstacle() const;
    // As obstacle(), but only a departure or a data path that stands still; empty: neither.
    [[nodiscard]] std::string not_ready() const;
    void stop();

    Config config_;
    MemoryWatch memory_{config_};
    bool take_over_;
    UniqueFd ready_fd_;
    Policy policy_;
    asio::io_context io_;
    asio::signal_set signals_;
    asio::steady_timer heartbeat_;
    loop::Standstill standstill_;
    loop::Every sweep_, refresh_, tidying_;
    std::string files_problem_;  // the last that restore_files() found
    bool pods_known_ = false;    // the API server has told of all pods and namespaces once
    clc::LocalNode node_;
    Connections connections_;
    Drain drain_;
    upgrade::Departure departure_;
    group::SmcdGroups smcd_groups_;

    // Each member is used by later ones, and destroyed after them. control_ uses admin_ and introspection_ once they
    // exist.
    std::optional<upgrade::Instance> instance_;
    std::optional<LockFile> pins_lock_;  // U1
    std::unique_ptr<ControlServer> control_;
    Kept<nlohmann::json> strangers_status_;  // for clients of the control socket that are not its owner
    std::optional<OwnCgroup> own_cgroup_;
    std::unique_ptr<smcd::Memory> smcd_memory_;
    std::unique_ptr<smcd::Fabrics> fabrics_;
    std::unique_ptr<smcd::Pool> smcd_pool_;
    std::vector<bpf::ProgramState> bypass_programs_;
    bool bypass_forced_ = false;              // a rule or local.bypass says force, whatever the probe finds
    std::unique_ptr<bypass::Bypass> bypass_;  // null: no rule allows it, or this kernel cannot do it
    std::optional<bypass::Verdict> verdict_;  // of the probe on this kernel
    std::unique_ptr<bpf::Programs> programs_;
    std::unique_ptr<kubernetes::NodePods> pods_;  // null: no API server is configured
    std::unique_ptr<Cgroups> cgroups_;
    std::unique_ptr<Namespaces> namespaces_;
    std::unique_ptr<bypass::Rounds> rounds_;
    std::unique_ptr<Engines> engines_;
    std::unique_ptr<smcr::Devices> roce_devices_;
    std::unique_ptr<smcr::LinkGroups> smcr_groups_;
    std::unique_ptr<Gateway> gateway_;
    std::unique_ptr<Introspection> introspection_;
    std::unique_ptr<Admin> admin_;
    std::optional<loop::FdWatch> program_events_;
    std::optional<Site> site_;
    std::unique_ptr<WebServer> web_;
};

}  // namespace smc
