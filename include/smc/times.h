// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How long the agent and the data path wait, and how often they look: one table, in milliseconds. Each row is a member
// of Times and a key of the section "times" in the configuration (docs/configuration.md), with the least and the most
// that it may be. What a user decides about his connections has keys elsewhere (fallback.budget_ms,
// smc.close_timeout_ms); what two peers must agree on is with their protocol (SMC v2.1, datapath/ivshmem/).
#pragma once

#include <chrono>

namespace smc {

// clang-format off
#define SMC_TIMES(TIME)                                                                                                \
    TIME(beat, 250, 50, 5000,                                                                                          \
         "The heartbeat: how often the agent tells the BPF programs that it lives.")            \
    TIME(stale, 900, 100, 60000,                                                                                       \
         "An older heartbeat is none: the programs ask nobody, new connections are plain TCP.")                \
    TIME(standstill, 750, 100, 60000,                                                                                  \
         "Likewise, when the data path has not moved for so long while the agent was in time.")                      \
    TIME(leg, 0, 0, 30000,                                                                                             \
         "Longest handshake of a leg, which does not leave the host. 0: 3/10 of fallback.budget_ms.")                  \
    TIME(last_word, 250, 10, 10000,                                                                                    \
         "How late what a client's agent said may come, after it has closed its CLC socket.")                      \
    TIME(late, 100, 10, 10000,                                                                                         \
         "An agent that is late for a deadline by this looks once more at what has come.")             \
    TIME(reset_grace, 250, 0, 10000,                                                                                   \
         "A reset has come: how long data that was sent before it may still come, by RDMA.")                           \
    TIME(last_messages, 300, 10, 10000,                                                                                \
         "A link ends: how long its last messages may take to leave.")                                                 \
    TIME(idle, 2000, 100, 3600000,                                                                                     \
         "A connection on which nothing moves gives its memory back after this.")               \
    TIME(look, 1000, 100, 60000,                                                                                       \
         "How often the agent looks for namespaces, and tries hairpins that have failed lately.")                 \
    TIME(probe, 5000, 100, 600000,                                                                                     \
         "How often it tries the hairpins that work.")                                                                 \
    TIME(trial, 50, 5, 5000,                                                                                           \
         "The bypass is tried: how long bytes may be on their way over lo.")                                           \
    TIME(retrial, 60000, 1000, 86400000,                                                                               \
         "How often it is tried again, where nothing but that is in the way.")                                         \
    TIME(prepare, 5000, 100, 60000,                                                                                    \
         "An agent that starts waits so long for the devices of its namespaces.")                                      \
    TIME(settle, 3000, 100, 60000,                                                                                     \
         "An agent that leaves waits so long for connections that are being set up.")                                  \
    TIME(answer, 5000, 100, 60000,                                                                                     \
         "An agent that takes a place waits so long for an answer, and twice for the leaving.")               \
    TIME(questions, 900, 0, 10000,                                                                                     \
         "An agent that ends waits so long for answers to SYNs that have asked.")                                      \
    TIME(engine, 5000, 100, 60000,                                                                                     \
         "An agent that ends waits so long for its data path.")                                                        \
    TIME(control, 5000, 100, 60000,                                                                                    \
         "Longest time that a client of the control socket may take to ask or to read.")

struct Times {
#define SMC_TIME_MEMBER(name, usual, least, most, meaning) std::chrono::milliseconds name{usual};
    SMC_TIMES(SMC_TIME_MEMBER)
#undef SMC_TIME_MEMBER
};
// clang-format on

}  // namespace smc
