// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How a connection ends: RFC 7609 section 4.8, figures 22 and 23, without I/O. D (done), C (closed) and A (aborted) are
// the connection state flags of CDC.
//
//   state              our application is done    our application has closed   peer: D        peer: C
//   kActive            D -> kPeerCloseWait1       (done comes first)           kAppCloseWait1 kAppCloseWait1
//   kPeerCloseWait1    -                          C, stay                      ..Wait2        kAppFinCloseWait *
//   kPeerCloseWait2    -                          C, stay                      -              kAppFinCloseWait *
//   kAppCloseWait1     D -> kAppCloseWait2        (done comes first)           -              stay
//   kAppCloseWait2     -                          C -> kPeerFinCloseWait *     -              stay
//   kAppFinCloseWait   -                          C -> kClosed                 -              -
//   kPeerFinCloseWait  -                          -                            -              kClosed
//     * kClosed at once if C went both ways
//   abort:  we start: A -> kPeerAbortWait;  peer: A -> answer A, kClosed
//
// "Done": the application will write no more, and all that it wrote is in the peer's buffer. "Closed": it is done, and
// it was given everything that the peer sent, including the end of the stream. Before that the agent cannot see that
// the application behind the leg has called close(), so C always follows D.
#pragma once

#include <cstdint>

#include "smc/wire/cdc.h"

namespace smc::flow {

class CloseMachine {
 public:
    enum class State : std::uint8_t {
        kActive,
        kPeerCloseWait1,
        kPeerCloseWait2,
        kAppCloseWait1,
        kAppCloseWait2,
        kAppFinCloseWait,
        kPeerFinCloseWait,
        kPeerAbortWait,
        kClosed,
    };

    void application_done();
    void application_closed();
    void application_aborted();
    // Connection state flags of the peer's last CDC message.
    void peer_flags(std::uint8_t flags);

    // Connection state flags to publish.
    [[nodiscard]] std::uint8_t flags() const { return flags_; }
    [[nodiscard]] State state() const { return state_; }
    // Our application ended first: this side closes the TCP connection first and has its TIME_WAIT, as without SMC.
    [[nodiscard]] bool active() const { return active_; }
    // Connection state flags that the peer published so far.
    [[nodiscard]] std::uint8_t peer() const { return peer_; }
    [[nodiscard]] bool peer_done() const { return (peer_ & (cdc::kSendingDone | cdc::kConnectionClosed)) != 0; }
    [[nodiscard]] bool peer_aborted() const { return (peer_ & cdc::kAbnormalClose) != 0; }

 private:
    State state_ = State::kActive;
    std::uint8_t flags_ = 0;
    std::uint8_t peer_ = 0;
    bool active_ = false;
};

const char* name(CloseMachine::State state);

}  // namespace smc::flow
