// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An SMC connection in the data path: an application's stream on one side, the rings of a transport on the other (RFC
// 7609 sections 4.3 to 4.8), without I/O. The flow says what is to be done next, one step at a time; whoever drives it
// does it and answers. Bytes never pass through here: they go from the application straight into the peer's ring, and
// from the own ring straight to the application, so backpressure is the rings' and the application's own.
//
// Words: the leg is the application's stream; the CLC socket is the TCP connection that CLC was spoken on and that
// stays idle until the end (section 4.8).
//
// Invariants:
//   F1  A byte counts as consumed only after the leg has taken it.
//   F2  The end of the stream is passed on only after the last byte: D follows the producer cursor, EndLeg follows an
//       empty ring.
//   F3  While urgent data is not consumed, nothing is written behind it (section 4.7.5).
//   F4  The CLC socket carries nothing after CLC: data or a reset there ends the connection. Its FIN may overtake the
//       peer's last flags, which go another way, so they have the time of a close to follow. A reset may too, where
//       the transport does not keep it behind what was published: what explains it has the reset grace to follow.
//   F5  What is published before the end leaves before End is told: an abort, or the answer to one.
//   F8  What the peer published before the end is the application's, before it hears of the end: whoever drives the
//       flow gives it what receiving() still has when End says so. Likewise what the application wrote before its leg
//       broke is published before the abort, as far as there is room.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "smc/flow/close_machine.h"
#include "smc/flow/receiving.h"
#include "smc/flow/sending.h"
#include "smc/time.h"
#include "smc/wire/reason.h"

namespace smc::flow {

// --- steps ----------------------------------------------------------------------------------------------------------
// Look at what the peer published. Answer: peer().
struct Load {};
// Give this to the application. Answer: delivered(), leg_full() or leg_takes_nothing().
struct Deliver {
    Receiving::Piece piece;
};
// End the leg's stream, behind what was delivered. No answer.
struct EndLeg {};
// Read from the application into the peer's ring, up to `bytes` from `at` on, but never across an urgent mark. Answer:
// took(), leg_empty(), leg_ended() or leg_broke().
struct Take {
    cdc::Cursor at;
    std::uint32_t bytes = 0;
};
// Tell the peer; `written` bytes were taken since the last time. No answer.
struct Publish {
    cdc::Producer producer;
    std::uint32_t written = 0;
};
// The consumer cursor moved. When the peer hears of it is the transport's to decide (section 4.5.1). No answer.
struct Consumed {
    cdc::Cursor cursor;
};
// There is something to send and no way to send it: run again when there is. No answer.
struct WantRoom {};
// Whether the application's kernel has everything that was written to the leg, its end included. Answer: leg_has().
struct AskLeg {};
// See what became of the CLC socket. Answer: clc_quiet(), clc_data(), clc_has_ended() or clc_reset().
struct LookAtClcSocket {};
// Nothing to do until there is news. Answer: slept().
struct Sleep {};
// The connection is over.
struct End {
    enum class How : std::uint8_t {
        kOrderly,  // everything was delivered both ways: close both sockets
        kReset,    // reset both
        kDeliver,  // reset both, the leg's behind what receiving() still has (F8)
    };
    Reason reason = Reason::kNone;
    How how = How::kReset;
};
using Step =
    std::variant<Load, Deliver, EndLeg, Take, Publish, Consumed, WantRoom, AskLeg, LookAtClcSocket, Sleep, End>;

// What is new about the leg.
struct LegEvents {
    bool readable = false;
    bool writable = false;
    bool urgent = false;  // an urgent byte lies ahead
    bool ending = false;  // an end or an error lies ahead
    bool failed = false;  // an error
};

class Flow {
 public:
    struct Terms {
        std::uint32_t send_size = 0;     // bytes of the peer's ring
        std::uint32_t window = 0;        // how many of them may be in use at once
        std::uint32_t receive_size = 0;  // bytes of the own ring
        bool cursor_is_told = false;     // by the peer, in messages; else it is seen whenever somebody looks
        // How long a peer that owes nothing but its last flags may take.
        std::chrono::milliseconds close_timeout{10000};
        // How long what a peer published may take after its reset of the CLC socket. 0: it cannot be late.
        std::chrono::milliseconds reset_grace{0};
    };

    explicit Flow(const Terms& terms);

    // --- events, at any time ----------------------------------------------------------------------------------------
    void leg_changed(const LegEvents& events);
    void clc_changed() { clc_event_ = true; }
    // How much of the peer's ring may be in use at once, from now on: at most Terms::window.
    void set_window(std::uint32_t bytes) {
        // Closed both ways: the peer's alert token may be another connection's.
        publish_ |= sending_.set_window(bytes) && close_.state() != CloseMachine::State::kClosed;
    }
    // The peer is to hear of this side although there is nothing to say.
    void speak() { publish_ = true; }
    // The peer is to say how far it is (RFC 7609 section 4.5.1, flag R): it has not for long.
    void ask_for_cursor() {
        sending_.ask_again();
        publish_ |= close_.state() != CloseMachine::State::kClosed;
    }
    // Ends at once, with an error on both sides.
    void abort(Reason reason);
    // The peer's ring is another connection's by now: this one ends, and writes nothing more there (RFC 7609 section
    // 4.4.2). False: this side has said that it is done with the ring, so the peer may.
    bool ring_taken();

    // --- what to do -------------------------------------------------------------------------------------------------
    // The same step again until it is answered, where it wants an answer. `can_send`: the transport would take a
    // Publish with bytes now. After End there is nothing but End.
    [[nodiscard]] Step next(TimePoint now, bool can_send);
    // When to ask although nothing happens.
    [[nodiscard]] TimePoint next_deadline() const { return std::min(close_deadline_, clc_deadline_); }

    // --- answers ----------------------------------------------------------------------------------------------------
    void peer(const PeerState& state);
    void delivered(std::uint32_t bytes);
    void leg_full();
    // `urgent`: exactly the urgent byte. `drained`: as far as is known, there is nothing more to read now.
    void took(std::uint32_t bytes, bool urgent, bool drained);
    void leg_empty();
    void leg_ended();
    void leg_has(bool all, TimePoint now);
    // The leg failed; an interrupted call is not a failure, and is answered with nothing at all.
    void leg_broke() { abort(Reason::kApplicationReset); }
    // It failed, but what the application wrote before may still be read (F8).
    void leg_takes_nothing();
    void clc_quiet() { phase_ = Phase::kClose; }
    void clc_data();
    void clc_has_ended();
    void clc_reset();
    void slept() { phase_ = Phase::kLoad; }

    // --- for display ------------------------------------------------------------------------------------------------
    [[nodiscard]] const Sending& sending() const { return sending_; }
    [[nodiscard]] const Receiving& receiving() const { return receiving_; }
    [[nodiscard]] CloseMachine::State close_state() const { return close_.state(); }
    // How often the peer's ring was full.
    [[nodiscard]] std::uint64_t blocked() const { return blocked_; }
    [[nodiscard]] bool ended() const { return end_.has_value(); }
    // The peer has closed or reset the CLC socket.
    [[nodiscard]] bool clc_ended() const { return clc_ended_; }

 private:
    // One turn: from looking at the peer to looking at the peer again, or to sleep.
    enum class Phase : std::uint8_t { kLoad, kReceive, kSend, kTurned, kLoadForClc, kClc, kClose, kSleep };
    enum class Reading : std::uint8_t { kQuiet, kReadable, kEnding, kEnded };
    enum class Writing : std::uint8_t { kWritable, kFull, kEnded, kBroken };

    std::optional<Step> receive();
    std::optional<Step> send(bool can_send);
    void after_turn();
    std::optional<Step> advance_close(TimePoint now);
    [[nodiscard]] bool all_is_said() const;
    [[nodiscard]] bool peer_is_closed() const { return (close_.peer() & cdc::kConnectionClosed) != 0; }
    void await_flags(TimePoint now);
    void finish(Reason reason);

    Sending sending_;
    Receiving receiving_;
    CloseMachine close_;
    std::chrono::milliseconds close_timeout_;
    std::chrono::milliseconds reset_grace_;

    Phase phase_ = Phase::kLoad;
    Reading reading_ = Reading::kReadable;  // until a read says otherwise
    Writing writing_ = Writing::kWritable;
    bool leg_failed_ = false;
    bool clc_event_ = false;
    bool clc_ended_ = false;
    bool clc_reset_ = false;
    bool moved_ = false;  // in this turn
    bool stuck_ = false;  // it waits for the peer, in this turn

    bool publish_ = false;  // Publish is due, with
    std::uint32_t written_ = 0;
    PeerState heard_;        // last, whichever message said so
    bool consumed_ = false;  // Consumed is due
    std::optional<End> end_;

    TimePoint close_deadline_ = kNever;  // for the peer to close, too
    TimePoint clc_deadline_ = kNever;    // for what explains the end of the CLC socket
    std::uint64_t blocked_ = 0;
};

}  // namespace smc::flow
