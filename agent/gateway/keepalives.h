// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Applications' keepalive and TCP_USER_TIMEOUT, brought to the connections that run: their CLC sockets stand for them
// on the wire. Control thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>

#include "agent/steer/programs.h"
#include "os/keepalive_terms.h"

namespace smc {

class Keepalives {
 public:
    using Tell = std::function<void(std::uint64_t id, const KeepaliveTerms& terms)>;

    // `programs` outlives this. `tell`: what the application of a connection wants is something else now.
    Keepalives(const bpf::Programs& programs, Tell tell) : programs_(programs), tell_(std::move(tell)) {}

    // `front`: its application's socket, as the programs know it.
    void add(std::uint64_t id, const smc_tuple& front) { running_.emplace(id, Running{front, {}}); }
    void remove(std::uint64_t id) { running_.erase(id); }
    // Applications may change their mind at any time: to be called now and then.
    void pass_on();

 private:
    struct Running {
        smc_tuple front;
        KeepaliveTerms told;  // last
    };

    const bpf::Programs& programs_;
    Tell tell_;
    std::unordered_map<std::uint64_t, Running> running_;
};

}  // namespace smc
