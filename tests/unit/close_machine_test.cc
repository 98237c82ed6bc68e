// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "smc/flow/close_machine.h"

#include <catch2/catch.hpp>

using smc::flow::CloseMachine;
using State = CloseMachine::State;
using namespace smc::cdc;

TEST_CASE("active_close__figure_22_path_3") {
    CloseMachine m;
    m.application_done();
    CHECK(m.state() == State::kPeerCloseWait1);
    CHECK(m.flags() == kSendingDone);
    m.peer_flags(kSendingDone);
    CHECK(m.state() == State::kPeerCloseWait2);
    CHECK(m.peer_done());
    m.peer_flags(kSendingDone | kConnectionClosed);
    CHECK(m.state() == State::kAppFinCloseWait);
    m.application_closed();
    CHECK(m.flags() == (kSendingDone | kConnectionClosed));
    CHECK(m.state() == State::kClosed);
}

TEST_CASE("passive_close__figure_22_path_4") {
    CloseMachine m;
    m.peer_flags(kSendingDone);
    CHECK(m.state() == State::kAppCloseWait1);
    m.application_done();
    CHECK(m.state() == State::kAppCloseWait2);
    m.application_closed();
    CHECK(m.state() == State::kPeerFinCloseWait);
    m.peer_flags(kSendingDone | kConnectionClosed);
    CHECK(m.state() == State::kClosed);
}

TEST_CASE("both_sides_end_in_closed_whatever_the_order") {
    // every interleaving of: own done, own closed (after done), peer done, peer closed (after done)
    for (int order = 0; order < 16; order++) {
        CloseMachine m;
        int own = 0, peer = 0;
        for (int step = 0; step < 4; step++) {
            if (((order >> step & 1) != 0 && own < 2) || peer == 2) {
                own++ == 0 ? m.application_done() : m.application_closed();
            } else {
                peer++;
                m.peer_flags(peer == 1 ? kSendingDone : kSendingDone | kConnectionClosed);
            }
        }
        CHECK(m.state() == State::kClosed);
    }
}

TEST_CASE("abort__active_waits_for_the_peer") {
    CloseMachine m;
    m.application_aborted();
    CHECK((m.flags() & kAbnormalClose) != 0);
    CHECK(m.state() == State::kPeerAbortWait);
    m.peer_flags(kSendingDone);  // ignored in this state
    CHECK(m.state() == State::kPeerAbortWait);
    m.peer_flags(kAbnormalClose);
    CHECK(m.state() == State::kClosed);
}

TEST_CASE("abort__passive_answers_with_its_own") {
    CloseMachine m;
    m.application_done();
    m.peer_flags(kAbnormalClose);
    CHECK(m.peer_aborted());
    CHECK((m.flags() & kAbnormalClose) != 0);
    CHECK(m.state() == State::kClosed);
}
