// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The checks of the BPF programs (bpf/eligibility.h), with their texts for users.
#pragma once

#include <array>

#include "bpf/abi.h"
#include "bpf/eligibility.h"

namespace smc::bpf {

// Program smc_explain answers with a bit for each check.
static_assert(SMC_IN_NO_DEVICE < 64);

struct Check {
    smc_decision decision;
    bool of_socket;    // it needs the socket or the SYN, so smc_explain cannot make it
    const char* text;  // what is in the way
};

#define SMC_OF_NODE false
#define SMC_OF_SOCKET true
#define SMC_CHECK(decision, needs, function, text) Check{decision, SMC_OF_##needs, text},
inline constexpr auto kOutboundChecks = std::to_array<Check>({SMC_OUTBOUND_CHECKS(SMC_CHECK)});
#undef SMC_CHECK
#undef SMC_OF_SOCKET
#undef SMC_OF_NODE

}  // namespace smc::bpf
