// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/clc/actions.h"

namespace smc::clc {

Outcome declined_by_peer(const Decline& decline) {
    return {.kind = Outcome::Kind::kFallBack,
            .reason = Reason::kPeerDeclined,
            .detail = "peer's reason " + reason_name(decline.reason),
            .peer_out_of_sync = decline.out_of_sync,
            .peer_reason = decline.reason};
}

}  // namespace smc::clc
