// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Connection Layer Control: the messages that negotiate SMC inside a TCP connection (RFC 7609 A.2, SMC v2.1).
#pragma once

#include "smc/wire/clc/accept.h"
#include "smc/wire/clc/decline.h"
#include "smc/wire/clc/header.h"
#include "smc/wire/clc/proposal.h"

namespace smc::clc {

using AnyMessage = std::variant<Proposal, AcceptR, AcceptD, Decline>;

// Decodes a message of any type.
Decoded<AnyMessage> decode(Bytes message);
Message encode(const AnyMessage& message);

// The type, according to the first 8 bytes; nothing: they are not the header of a message.
std::optional<Type> type_of(Bytes message);
// Faults: a message of an unexpected type, and an Accept or Confirm of a variant that was not agreed on.
Fault wrong_type(Bytes message, const char* expected);
Fault wrong_variant(const Acceptance& acceptance, const char* expected);

}  // namespace smc::clc
