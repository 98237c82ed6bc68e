// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The programs' questions (bpf/eligibility.h) for people.
#pragma once

#include <array>

#include "bpf/abi.h"
#include "bpf/eligibility.h"

namespace smc::bpf {

// smc_explain answers with a bit for each.
static_assert(SMC_IN_NOTHING < 64);

struct Question {
    smc_decision decision;
    bool of_socket;    // only the socket can tell
    const char* text;  // what is in the way
};

#define SMC_OF_NODE false
#define SMC_OF_SOCKET true
#define SMC_QUESTION(decision, whom, function, text) Question{decision, SMC_OF_##whom, text},
inline constexpr auto kOutboundQuestions = std::to_array<Question>({SMC_OUTBOUND_QUESTIONS(SMC_QUESTION)});
#undef SMC_QUESTION
#undef SMC_OF_SOCKET
#undef SMC_OF_NODE

}  // namespace smc::bpf
