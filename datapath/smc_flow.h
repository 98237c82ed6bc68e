// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An SMC connection: local leg <-> the rings of a transport (RFC 7609 sections 4.3 to 4.8).
//
// Payload is read from the leg into the transport's memory and written from the own ring straight into the leg. There
// is no other buffer, so backpressure is the rings' and the sockets' own.
//
// Invariants:
//   F1  A byte counts as consumed only after the leg has taken it.
//   F2  The end of the stream is passed on only after the last byte (D flag after the producer cursor,
//       shutdown() after the ring is empty).
//   F3  While urgent data is not consumed, nothing is written behind it (section 4.7.5).
//   F4  The TCP connection (wire) carries nothing after CLC: data or a reset there ends the connection. Its FIN may
//   overtake
//       the peer's last flags, which go another way, so they have the time of a close to follow.
#pragma once

#include <cstdint>
#include <memory>

#include "datapath/close_machine.h"
#include "datapath/flow.h"
#include "datapath/leg.h"
#include "datapath/transport.h"

namespace smc {

class SmcFlow final : public Flow {
 public:
    struct Parts {
        Leg leg;
        Leg wire;
        std::unique_ptr<Transport> transport;
        std::chrono::milliseconds close_timeout{10000};
    };

    SmcFlow(std::uint64_t id, std::shared_ptr<FlowStats> counters, Parts parts);

    bool start(Poller& poller) override;
    void on_event(int which, std::uint32_t events) override;
    bool run(TimePoint now) override;
    void abort(Reason reason) override;
    [[nodiscard]] TimePoint deadline() const override { return std::min(close_deadline_, wire_deadline_); }

 private:
    enum Which { kLeg, kWire, kTransport };
    enum class Step { kMoved, kIdle, kStuck };

    bool read_peer();
    void note_urgent(std::optional<cdc::Cursor> mark, std::uint32_t size);
    Step send_some();
    Step receive_some();
    Step deliver(std::uint32_t available);
    void publish(std::uint32_t written = 0);
    void check_wire();
    void advance_close(TimePoint now);
    void finish(Reason reason);

    Parts parts_;
    Poller::Source sources_[3];
    CloseMachine close_;

    // sending: cursors in the peer's ring
    cdc::Producer produced_;
    cdc::Cursor peer_consumed_;
    bool urgent_pending_ = false;      // the leg has an urgent byte ahead
    bool urgent_outstanding_ = false;  // it is in the ring and not consumed yet
    bool leg_readable_ = true;
    bool leg_ending_ = false;  // an end or an error lies ahead
    bool leg_ended_ = false;
    bool leg_failed_ = false;

    // receiving: cursors in the own ring
    cdc::Producer peer_produced_;
    cdc::Cursor consumed_;
    std::optional<cdc::Cursor> urgent_at_;  // behind an urgent byte that is not consumed yet
    bool leg_writable_ = true;
    bool end_delivered_ = false;

    bool wire_event_ = false;
    bool wire_ended_ = false;
    TimePoint close_deadline_ = TimePoint::max();  // for the peer to close, too
    TimePoint wire_deadline_ = TimePoint::max();   // for the flags that explain the end of the TCP connection
};

}  // namespace smc
