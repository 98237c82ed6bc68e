// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/agent.h"

#include <fmt/format.h>
#include <unistd.h>

#include <asio/post.hpp>
#include <csignal>
#include <nlohmann/json.hpp>

#include "os/clock.h"

namespace smc {

void Agent::bypass_tried(const bypass::Verdict& verdict, bool last) {
    verdict_ = verdict;
    if (verdict.obstacle.empty()) {
        programs_->allow_local(SMC_LOCAL_BYPASS);
        log()->info("the bypass is on for rules that say auto ({} us): a later run of the probe found no obstacle",
                    verdict.took.count());
    } else if (last) {
        log()->info("the bypass stays off for rules that say auto: {}", verdict.obstacle);
        if (!bypass_forced_ && !bypass_->has_members()) {
            asio::post(io_, [this] { unload_bypass(); });  // posted, because rounds_ is calling this function
        }
    }
}

void Agent::unload_bypass() {
    rounds_.reset();
    bypass::unload(bypass_, bypass_programs_);
}

void Agent::wait_for_signals() {
    signals_.async_wait([this](std::error_code error, int number) {
        if (error) {
            return;
        }
        log()->info("received signal {}", number);
        wait_for_signals();
        if (number == SIGHUP) {
            log()->warn(
                "SIGHUP changes nothing: the configuration is read at the start; `smcctl upgrade` starts an "
                "agent that reads it again, and connections stay");
        } else if (number == SIGQUIT) {
            log()->info("status {}",
                        introspection_->status().dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
        } else {
            departure_.signalled();
        }
    });
}

// Gives up what only one agent of a node can have, in this order (U1). The data path and the link groups stay, and in
// each namespace the programs and the sockets that legs need.
void Agent::hand_over() {
    web_.reset();
    rounds_.reset();
    gateway_->let_all_go();
    namespaces_->withdraw();
    if (auto withdrawn = programs_->withdraw(); !withdrawn) {
        log()->error("upgrade: withdrawing the BPF programs failed: {}", withdrawn.error().text());
    }
    bypass_.reset();
    pins_lock_.reset();
    const std::string socket = upgrade::Instance::socket_of(config_.control_socket, instance_->number());
    if (auto moved = control_->move_to(socket); !moved) {
        log()->error("upgrade: smcctl does not find this leaving agent any more: {}", moved.error().text());
    }
    pods_.reset();
}

// Reports that this agent serves: to the agent that started it (ready_fd_), and in the log.
void Agent::say_that_it_serves() const {
    if (ready_fd_) {
        [[maybe_unused]] const ssize_t told = ::write(ready_fd_.get(), "", 1);
    }
    std::vector<std::string> devices;
    for (const clc::IsmDevice& device : node_.ism) {
        devices.push_back(device.gid.text() + " chid " + text(device.chid));
    }
    log()->info("serving: gid {} eids {} cgroups below {}", fmt::join(devices, ", "), fmt::join(config_.ueids, " "),
                cgroups_->root());
}

void Agent::run() {
    wait_for_signals();
    if (!departure_.released()) {  // another agent may have taken over already
        say_that_it_serves();
    }
    ready_fd_.reset();
    io_.run();
    log()->info("stopping, {} connections are reset", connections_.live());
    stop();
}

// In this order: the BPF programs stop asking; applications that wait are left to TCP; running connections are reset
// while their hairpins still exist; requests under way are awaited, because only this agent's programs recognize their
// answers.
void Agent::stop() {
    programs_->beat(false, false);
    heartbeat_.cancel();
    web_.reset();
    gateway_->let_all_go();
    smcr_groups_->end_all();
    if (!engines_->stop(config_.times.engine)) {
        // Ends as if killed: the kernel resets the sockets, and the programs, which stay, bring the resets to the
        // applications.
        log()->error("the data path did not stop in time: exiting, the kernel resets its connections");
        end_log();
        ::_exit(1);
    }
    pods_.reset();
    const TimePoint until = os::now() + config_.times.requests;
    while (programs_->awaits_answers(config_.times.requests) && os::now() < until) {
        programs_->poll();  // answers with option 254: the applications' SYNs are sent at once
        ::usleep(10'000);
    }
    namespaces_->close_all();
}

}  // namespace smc
