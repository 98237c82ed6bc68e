// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which types of a Proposal this node could accept (v2.1 "Migration"; RFC 7609 section 3.5.1.2 for SMC-Rv1).
#pragma once

#include "smc/clc/node.h"
#include "smc/wire/reason.h"

namespace smc::clc {

// Types that may carry a connection, in the order in which a server tries them. SMC-Dv1 is not among them: it needs ISM
// hardware.
enum class Candidate : std::uint8_t { kNone, kSmcDv2, kSmcRv2, kSmcRv1, kExhausted };

// Each returns kNone if this type can be accepted, and fills in `peer`; otherwise the reason why not. The first two
// need proposal.v2. SMC-D takes the first of the client's fabrics, from its entry `from` on, that this node has, too;
// `from` is then after that entry, for another try.
Reason select_smcd_v2(const Proposal& proposal, const LocalNode& node, std::size_t& from, SmcdPeer& peer);
Reason select_smcr_v2(const Proposal& proposal, const LocalNode& node, const std::optional<RoceOffer>& roce,
                      SmcrPeer& peer);
Reason select_smcr_v1(const Proposal& proposal, const std::optional<RoceOffer>& roce, SmcrPeer& peer);

}  // namespace smc::clc
