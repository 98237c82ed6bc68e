// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Applications' keepalive and TCP_USER_TIMEOUT, brought to the connections that run: their CLC sockets stand for them
// on the wire. Control thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "agent/steer/programs.h"
#include "datapath/engine.h"
#include "datapath/task.h"

namespace smc {

class Keepalives {
 public:
    // Outlives this.
    explicit Keepalives(const bpf::Programs& programs) : programs_(programs) {}

    // `front`: its application's socket, as the programs know it. `engine`: drives it, and outlives this.
    void add(std::uint64_t id, const smc_tuple& front, Engine& engine,
             const std::shared_ptr<ConnectionTask>& connection);
    void remove(std::uint64_t id) { running_.erase(id); }
    // Applications may change their mind at any time: to be called now and then.
    void pass_on();

 private:
    struct Running {
        smc_tuple front;
        Engine* engine = nullptr;
        std::weak_ptr<ConnectionTask> connection;
        KeepaliveTerms told;  // last
    };

    const bpf::Programs& programs_;
    std::unordered_map<std::uint64_t, Running> running_;
};

}  // namespace smc
