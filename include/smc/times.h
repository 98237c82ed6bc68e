// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How long the agent and the data path wait, and how often they look: one table, in milliseconds. Each row is a member
// of Times and a key of the section "times" in the configuration (docs/configuration.md), with the least and the
// largest value that it may have. Times that users decide on for their connections have keys elsewhere
// (fallback.budget_ms, smc.close_timeout_ms); times that two peers must agree on are with their protocol (SMC v2.1,
// datapath/ivshmem/).
#pragma once

#include <chrono>

namespace smc {

// clang-format off
#define SMC_TIMES(TIME) \
    TIME(beat, 250, 50, 1000, \
         "The heartbeat: how often the agent tells the BPF programs that it lives.") \
    TIME(stale, 900, 100, 60000, \
         "An older heartbeat counts as missing: no requests, new connections are plain TCP.") \
    TIME(standstill, 750, 100, 60000, \
         "A data path that has stood still for this long: new connections are plain TCP.") \
    TIME(leg, 0, 0, 900, \
         "Longest handshake of a leg. 0: 3/10 of fallback.budget_ms, at most 900.") \
    TIME(last_word, 250, 10, 10000, \
         "How late a last message may come from a client's agent whose CLC socket has closed.") \
    TIME(late, 100, 10, 10000, \
         "If a server's agent is this late for a deadline, it first reads what has come.") \
    TIME(reset_grace, 250, 0, 10000, \
         "How long after a reset data that the peer sent before it may still arrive by RDMA.") \
    TIME(last_messages, 300, 10, 10000, \
         "How long the last messages of a link that ends may take to leave.") \
    TIME(idle, 2000, 100, 3600000, \
         "An SMC-D connection that has sent nothing for so long gives memory back.") \
    TIME(look, 1000, 100, 60000, \
         "How often the agent looks for namespaces, and tries hairpins that have failed lately.") \
    TIME(probe, 5000, 100, 600000, \
         "How often the hairpins of all devices are tried (not the probe of the bypass).") \
    TIME(trial, 50, 5, 500, \
         "The probe of the bypass: how long bytes over lo may take.") \
    TIME(retrial, 60000, 1000, 86400000, \
         "When the probe of the bypass is repeated: up to five times, if no guard is missing.") \
    TIME(prepare, 5000, 100, 60000, \
         "How long an agent that starts waits for the devices of its namespaces.") \
    TIME(settle, 3000, 100, 60000, \
         "How long an agent that leaves waits for connections that are being set up.") \
    TIME(answer, 5000, 100, 60000, \
         "How long an agent that takes over waits for an answer, then (+ settle_ms) to serve.") \
    TIME(successor, 45000, 200, 600000, \
         "A successor that takes longer to take over or serve (+ times.prepare_ms) is killed.") \
    TIME(requests, 900, 0, 10000, \
         "How long an agent that ends waits for answers to SYNs with option 254.") \
    TIME(engine, 5000, 100, 60000, \
         "How long an agent that ends waits for its data path.") \
    TIME(control, 5000, 1000, 60000, \
         "Longest time for a request on the control socket, and for a capture without one.")

struct Times {
#define SMC_TIME_MEMBER(name, usual, least, most, meaning) std::chrono::milliseconds name{usual};
    SMC_TIMES(SMC_TIME_MEMBER)
#undef SMC_TIME_MEMBER
};
// clang-format on

}  // namespace smc
