// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An SMC connection in the data path, without I/O: an application's stream on one side, the rings of a transport on the
// other (RFC 7609 sections 4.3 to 4.8). The flow says which step comes next, one at a time; its driver carries the step
// out and answers. Bytes never pass through here: they go from the application straight into the peer's ring, and from
// this side's ring straight to the application, so backpressure is that of the rings and of the application.
//
// Terms: the leg is the TCP connection to the application; the CLC socket is the TCP connection of the CLC handshake,
// which stays idle until the end (section 4.8).
//
// Invariants:
//   F1  A byte counts as consumed only after the leg has taken it.
//   F2  The end of the stream is passed on only after the last byte: D follows the producer cursor, EndLeg follows an
//       empty ring.
//   F3  While urgent data is not consumed, nothing is written after it (section 4.7.5).
//   F4  The CLC socket carries nothing after CLC: data or a reset there ends the connection. Its FIN may overtake the
//       peer's last flags, which go another way, so the flags have the close timeout to follow. If the transport does
//       not keep a reset after what was published, a reset may overtake the flags, too; then they have the reset
//       grace.
//   F5  The last Publish (an abort, or the answer to the peer's abort) comes before End.
//   F6  and F7: see cdc_outbox.h and staging.h.
//   F8  The application gets all data that the peer published before the end, and only then hears of the end: with
//       kDeliver the driver delivers what receiving() still has, and the end of the stream if the peer had ended it.
//       Likewise what the application wrote before its leg broke is published before the abort, as far as there is
//       room.
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
// Read what the peer has published. Answer: peer().
struct Load {};
// Write this to the application. Answer: delivered(), leg_full() or leg_takes_nothing().
struct Deliver {
    Receiving::Piece piece;
};
// End the leg's stream, after what was delivered. No answer.
struct EndLeg {};
// Read from the application into the peer's ring, up to `bytes` from `at` on, but never across an urgent mark. Answer:
// took(), leg_empty(), leg_ended() or leg_broke().
struct Take {
    cdc::Cursor at;
    std::uint32_t bytes = 0;
};
// Publish to the peer; `written` bytes were taken since the last Publish. No answer.
struct Publish {
    cdc::Producer producer;
    std::uint32_t written = 0;
};
// The consumer cursor moved. The transport decides when to tell the peer (section 4.5.1). No answer.
struct Consumed {
    cdc::Cursor cursor;
};
// There is something to send, but the transport has no room: run the flow again when it has. No answer.
struct WantRoom {};
// Find out whether the application's kernel has everything that was written to the leg, and the end. Answer:
// leg_drained().
struct CheckLegDrained {};
// Look for data, a FIN or a reset on the CLC socket. Answer: clc_quiet(), clc_data(), clc_has_ended() or clc_reset().
struct LookAtClcSocket {};
// There is nothing to do before the next event. Answer: slept().
struct Sleep {};
// The connection is over.
struct End {
    enum class How : std::uint8_t {
        kOrderly,  // everything was delivered both ways: close both sockets
        kReset,    // reset both sockets
        kDeliver,  // reset both; the leg only when everything that receiving() still has is delivered (F8)
    };
    Reason reason = Reason::kNone;
    How how = How::kReset;
    // With kDeliver: the peer had ended its stream, so its end is delivered, too.
    bool peer_done = false;
};
using Step = std::variant<Load, Deliver, EndLeg, Take, Publish, Consumed, WantRoom, CheckLegDrained, LookAtClcSocket,
                          Sleep, End>;

// Events of the leg.
struct LegEvents {
    bool readable = false;
    bool writable = false;
    bool urgent = false;  // there is an urgent byte to read
    bool ending = false;  // a FIN or an error follows what can be read
    bool failed = false;  // the leg has an error
    bool reset = false;   // with `failed`: the application has reset the connection
};

class Flow {
 public:
    struct Terms {
        std::uint32_t send_size = 0;     // bytes of the peer's ring
        std::uint32_t window = 0;        // how many of them may be in use at once
        std::uint32_t receive_size = 0;  // bytes of this side's ring
        bool cursor_is_told = false;     // the peer's cursor comes in messages; otherwise it can be read at any time
        // How long to wait for a peer that owes nothing but its last flags.
        std::chrono::milliseconds close_timeout{10000};
        // How long data may still come after the peer has reset the CLC socket. 0: no published data can come later.
        std::chrono::milliseconds reset_grace{0};
    };

    explicit Flow(const Terms& terms);

    // --- events, at any time ----------------------------------------------------------------------------------------
    void leg_changed(const LegEvents& events);
    // There is nothing to read yet: epoll's first event, which has the whole state of the leg, says so.
    void leg_begins_empty() {
        if (reading_ == Reading::kReadable) {
            reading_ = Reading::kQuiet;
        }
    }
    void clc_changed() { clc_event_ = true; }
    // How much of the peer's ring may be in use at once, from now on: at most Terms::window.
    void set_window(std::uint32_t bytes) {
        // Once both sides have closed, the peer's alert token may belong to another connection.
        publish_ |= sending_.set_window(bytes) && close_.state() != CloseMachine::State::kClosed;
    }
    // Publishes although nothing has changed, so that the peer hears from this side.
    void speak() { publish_ = true; }
    // Asks the peer for its consumer cursor, which has not moved for long (RFC 7609 section 4.5.1, flag R).
    void ask_for_cursor() {
        sending_.ask_again();
        publish_ |= close_.state() != CloseMachine::State::kClosed;
    }
    // Ends at once, with an error on both sides.
    void abort(Reason reason);
    // The peer has given its ring to another connection: this one aborts, and writes nothing more there (RFC 7609
    // section 4.4.2). False, and nothing happens: this side has published that it is closed, so the peer may do that.
    bool ring_taken();

    // --- what to do -------------------------------------------------------------------------------------------------
    // If a step wants an answer, it is returned again until it has one. `can_send`: the transport would take a Publish
    // with bytes now. After End there is nothing but End.
    [[nodiscard]] Step next(TimePoint now, bool can_send);
    // When to call next() even if nothing has happened.
    [[nodiscard]] TimePoint next_deadline() const {
        return std::min({close_deadline_, clc_deadline_, more_deadline_, corked_deadline_});
    }

    // --- answers ----------------------------------------------------------------------------------------------------
    void peer(const PeerState& state);
    void delivered(std::uint32_t bytes);
    void leg_full();
    // `urgent`: these are exactly the urgent byte. `drained`: as far as is known, there is nothing more to read now.
    void took(std::uint32_t bytes, bool urgent, bool drained);
    void leg_empty();
    void leg_ended();
    void leg_drained(bool all, TimePoint now);
    // The leg failed. An interrupted call is not a failure: do not answer it, and the step comes again.
    void leg_broke() { abort(Reason::kApplicationReset); }
    // Writing failed, but what the application wrote before may still be read (F8). `took_error`: in place of the error
    // that the write has reported, reads return an end.
    void leg_takes_nothing(bool took_error);
    void clc_quiet() { phase_ = Phase::kClose; }
    void clc_data();
    void clc_has_ended();
    void clc_reset();
    void slept() { phase_ = Phase::kLoad; }

    // --- for display ------------------------------------------------------------------------------------------------
    [[nodiscard]] const Sending& sending() const { return sending_; }
    [[nodiscard]] const Receiving& receiving() const { return receiving_; }
    [[nodiscard]] CloseMachine::State close_state() const { return close_.state(); }
    // How often sending had to stop because the window was full.
    [[nodiscard]] std::uint64_t blocked() const { return blocked_; }
    [[nodiscard]] bool ended() const { return end_.has_value(); }
    // The peer has closed or reset the CLC socket.
    [[nodiscard]] bool clc_ended() const { return clc_ended_; }

 private:
    // A pass goes from one Load to the next Load, or to Sleep.
    enum class Phase : std::uint8_t { kLoad, kReceive, kSend, kPassDone, kLoadForClc, kClc, kClose, kSleep };
    // Of the leg: what the application sends is read, and what it is to receive is written.
    enum class Reading : std::uint8_t { kQuiet, kReadable, kEnding, kEnded };
    enum class Writing : std::uint8_t { kWritable, kFull, kEnded, kBroken };

    std::optional<Step> receive(TimePoint now);
    bool awaits_more(TimePoint now);
    void look_for_corked(TimePoint now);
    [[nodiscard]] bool says_closed_alone() const;
    [[nodiscard]] bool may_lack_bytes() const;
    std::optional<Step> send(bool can_send);
    void after_pass();
    std::optional<Step> advance_close(TimePoint now);
    [[nodiscard]] bool all_is_said() const;
    [[nodiscard]] bool peer_is_closed() const { return (close_.peer() & cdc::kConnectionClosed) != 0; }
    void await_flags(TimePoint now);
    void finish(Reason reason);

    Sending sending_;
    Receiving receiving_;
    CloseMachine close_;
    bool cursor_is_told_;
    std::chrono::milliseconds close_timeout_;
    std::chrono::milliseconds reset_grace_;

    Phase phase_ = Phase::kLoad;
    Reading reading_ = Reading::kReadable;  // until a read or leg_begins_empty() says otherwise
    Writing writing_ = Writing::kWritable;
    bool leg_failed_ = false;
    bool leg_was_reset_ = false;
    bool took_error_ = false;     // by a write
    bool asked_for_all_ = false;  // the peer was asked to tell when it has consumed all; then the connection aborts
    bool clc_event_ = false;
    bool clc_ended_ = false;
    bool clc_reset_ = false;
    bool moved_ = false;  // this pass has moved something, so another one follows
    bool stuck_ = false;  // sending waits for the peer, in this pass

    bool publish_ = false;  // Publish is due
    std::uint32_t written_ = 0;
    // The peer's last state, without the number of its message: tells whether the next one is new.
    PeerState heard_;
    bool consumed_ = false;  // Consumed is due
    std::optional<End> end_;

    TimePoint close_deadline_ = kNever;   // until when to wait for the peer to close, too
    TimePoint more_deadline_ = kNever;    // until when bytes may come for which there was no room when the peer ended
    TimePoint corked_deadline_ = kNever;  // until when bytes of Linux may come behind its end
    std::optional<cdc::Cursor> corked_behind_{};  // the peer's cursor when that time began; once over, kNever
    TimePoint clc_deadline_ = kNever;             // until when to wait for flags that explain the end of the CLC socket
    std::uint64_t blocked_ = 0;
};

}  // namespace smc::flow
