// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The agent while it serves: its heartbeat, and events of the programs, of peers, of pods and of the control socket.
#include <nlohmann/json.hpp>

#include "agent/agent.h"
#include "agent/steer/addresses.h"
#include "os/clock.h"

namespace smc {

void Agent::listen_to_programs() {
    program_events_->when_readable([this] {
        programs_->poll();
        listen_to_programs();
    });
}

void Agent::handle(const smc_event& event) {
    switch (event.type) {
        case SMC_EVENT_REQUEST:
            if (not_ready().empty() && !drain_.on) {
                gateway_->server_speaks_smc(event);
            } else {
                gateway_->let_go(event, Reason::kStopped);
            }
            break;
        case SMC_EVENT_RESET:
            gateway_->syn_was_reset(event);
            break;
        case SMC_EVENT_NETNS_UNKNOWN:
            if (const auto it = cgroups_->groups().find(event.cgroup);
                it == cgroups_->groups().end() || it->second.enrolled) {
                namespaces_->rescan_soon();
            }
            break;
        case SMC_EVENT_CALLBACK_LOST:
            namespaces_->callback_taken(event.tuple.slot, !remote_of(event.tuple).is_v4());
            break;
        case SMC_EVENT_CGROUP_UNKNOWN:
            if (!cgroups_->groups().contains(event.cgroup)) {
                cgroups_->rescan_soon();
            }
            break;
    }
}

// A client that is neither root nor the agent's user gets the agent's status, and nothing about others' connections.
nlohmann::json Agent::answer(const nlohmann::json& request, const ControlServer::Who& who) {
    if (!who.owner) {
        return request.value("command", "") == "status"
                   ? strangers_status_.get([this] { return introspection_->status(); })
                   : nlohmann::json{{"error", "only root and the agent's user may ask for more than status"}};
    }
    if (auto done = admin_->answer(request, who.pid)) {
        return std::move(*done);
    }
    return introspection_->answer(request);
}

void Agent::lose_peer(const smcd::Peer& peer) {
    log()->info("ism: peer {} is gone, CHID {}", peer.gid.text(), text(peer.fabric->chid()));
    smcd_groups_.drop_peer(peer.fabric->chid(), peer.gid);
    if (gateway_ && peer.fabric->peers_die_silently()) {
        gateway_->peer_gone(peer);
    }
    if (smcd_pool_) {
        smcd_pool_->forget(peer, os::now());
    }
}

// Revokes the bypass if a rule no longer allows it for some cgroup; its connections go on by TCP. Connections of the
// agent run on, as after any change of rules.
void Agent::pods_changed() {
    const bool less = cgroups_->reconsider();
    // Pairs taken over from the previous agent keep their permission until this agent knows the pods, too.
    pods_known_ = pods_known_ || pods_->problem().empty();
    const auto lost = [&] {
        return (pods_known_ || !bypass_->taken_over()) &&
               bypass_->any_of([&](const smc_member& one) { return cgroups_->may_less(one.cgroup, one.rules); });
    };
    if (bypass_ && (less || lost())) {
        bypass_->revoke();
    }
}

// Tells the BPF programs whether they may ask servers and answer clients.
void Agent::tell_programs() const {
    if (departure_.released()) {
        return;  // U1: the programs stay silent from here on
    }
    programs_->beat(obstacle().empty(), !roce_devices_->ports().empty());
}

std::string Agent::not_ready() const {
    return standstill_.stands_still() ? "the data path stands still" : departure_.obstacle();
}

std::string Agent::obstacle() const {
    if (std::string lasting = not_ready(); !lasting.empty()) {
        return lasting;
    }
    if (drain_.on) {
        return "smcctl drain is in effect";
    }
    return gateway_->obstacle();
}

// Makes the files by which other processes find this agent again if somebody has deleted them. A problem that stays is
// logged once.
void Agent::restore_files() {
    std::string problem;
    const auto look = [&problem](const char* what, const Result<bool>& restored) {
        if (!restored) {
            problem = restored.error().text();
        } else if (*restored) {
            log()->warn("files: {} was deleted by another program: it is made again", what);
        }
    };
    look("this agent's lock beside control.socket", instance_->restore());
    look("control.socket", control_->restore());
    look("this agent's socket in ism.directory", fabrics_->restore());
    if (problem != std::exchange(files_problem_, problem) && !problem.empty()) {
        log()->error("files: smcctl, other agents or an upgrade do not find this agent: {}", problem);
    }
}

void Agent::beat() {
    const TimePoint now = os::now();
    if (standstill_.look(engines_->have_iterated(), now)) {
        if (standstill_.stands_still()) {
            log()->error(
                "the data path stands still: new connections are plain TCP, and those over SMC wait; if this lasts, "
                "restart the agent, which resets them");
        } else {
            log()->info("the data path goes on");
        }
    }
    tell_programs();
    if (sweep_.due(now)) {
        if (memory_.look()) {
            smcd_memory_->set_limit(std::uint64_t{config_.ism_memory_mib} << 20);
            smcr_groups_->set_memory_limit(std::size_t{config_.roce.memory_mib} << 20);
            gateway_->set_most_connections(config_.max_connections);
        }
        gateway_->swept(programs_->sweep());
        gateway_->balance();
        smcd_pool_->sweep(now);
        restore_files();
    }
    if (tidying_.due(now)) {
        bypass::Bypass::remove_moved_aside(config_.pin_path);
    }
    if (config_.roce.enabled && refresh_.due(now)) {
        roce_devices_->refresh();
    }
    heartbeat_.expires_after(config_.times.beat);
    heartbeat_.async_wait([this](std::error_code error) {
        if (!error) {
            beat();
        }
    });
}

}  // namespace smc
