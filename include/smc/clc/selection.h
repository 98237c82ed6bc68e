// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What of a Proposal this node could accept (v2.1 "Migration"; RFC 7609 section 3.5.1.2 for SMC-Rv1).
#pragma once

#include "smc/clc/node.h"
#include "smc/wire/reason.h"

namespace smc::clc {

// What may carry a connection, in the order in which a server tries it. SMC-Dv1 needs ISM hardware.
enum class Candidate : std::uint8_t { kNone, kSmcDv2, kSmcRv2, kSmcRv1, kExhausted };

// kNone: it may; the peer's part is filled in. Everything else: why not. The first two need proposal.v2.
// SMC-D: by the first fabric of the client's, from its entry `from` on, that this node has, too; `from` is then behind
// it, for another try.
Reason select_smcd_v2(const Proposal& proposal, const LocalNode& node, std::size_t& from, SmcdPeer& peer);
Reason select_smcr_v2(const Proposal& proposal, const LocalNode& node, const std::optional<RoceOffer>& roce,
                      SmcrPeer& peer);
Reason select_smcr_v1(const Proposal& proposal, const std::optional<RoceOffer>& roce, SmcrPeer& peer);

}  // namespace smc::clc
