// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Drives the flow of a connection without a leg, a peer or a CLC socket.
#pragma once

#include <catch2/catch.hpp>
#include <utility>

#include "smc/flow/flow.h"

namespace smc::test {

using namespace smc::flow;

// Runs the flow until it sleeps or ends. If it looks at the CLC socket, that was reset. `ends`: the application's
// stream ends; otherwise it is silent. `delivered`: the application's kernel has received everything.
// `told`: becomes the connection state flags that were published last.
inline Step run_flow(Flow& flow, const PeerState& peer, TimePoint now, bool ends = false, bool delivered = true,
                     cdc::Producer* told = nullptr) {
    for (int steps = 0; steps < 100; steps++) {
        const Step step = flow.next(now, true);
        if (std::holds_alternative<Load>(step)) {
            flow.peer(peer);
        } else if (std::holds_alternative<Take>(step)) {
            std::exchange(ends, false) ? flow.leg_ended() : flow.leg_empty();
        } else if (std::holds_alternative<Deliver>(step)) {
            flow.delivered(std::get<Deliver>(step).piece.bytes);
        } else if (std::holds_alternative<CheckLegDrained>(step)) {
            flow.leg_drained(delivered, now);
        } else if (std::holds_alternative<Publish>(step) && told != nullptr) {
            *told = std::get<Publish>(step).producer;
        } else if (std::holds_alternative<LookAtClcSocket>(step)) {
            flow.clc_reset();
        } else if (std::holds_alternative<Sleep>(step)) {
            flow.slept();
            return step;
        } else if (std::holds_alternative<End>(step)) {
            return step;
        }
    }
    FAIL("it neither sleeps nor ends");
    return {};
}

}  // namespace smc::test
