// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An SMC-D connection: local leg <-> DMB rings (RFC 7609 sections 4.3 to 4.8 over ISM).
//
// Payload is read from the leg straight into the peer's DMB and written from the own DMB straight into the
// leg. There is no other buffer, so backpressure is the rings' and the sockets' own.
//
// Invariants:
//   F1  A byte counts as consumed only after the leg has taken it.
//   F2  The end of the stream is passed on only after the last byte (D flag after the producer cursor,
//       shutdown() after the ring is empty).
//   F3  While urgent data is not consumed, nothing is written behind it (section 4.7.5).
//   F4  The TCP connection (wire) carries nothing after CLC; anything there ends the connection.
#pragma once

#include <cstdint>
#include <memory>

#include "datapath/close_machine.h"
#include "datapath/flow.h"
#include "datapath/ism/dmb.h"
#include "datapath/leg.h"

namespace smc {

class SmcdFlow final : public Flow {
 public:
    struct Parts {
        Leg leg;
        Leg wire;
        std::shared_ptr<ism::Dmb> own;  // registered for the peer
        ism::Dmb peer;                  // attached
        std::chrono::milliseconds close_timeout{10000};
    };

    SmcdFlow(std::uint64_t id, std::shared_ptr<FlowStats> counters, Parts parts);

    bool start(Poller& poller) override;
    void on_event(int which, std::uint32_t events) override;
    bool run(TimePoint now) override;
    void abort(Reason reason) override;
    [[nodiscard]] bool ended(FlowEnd& end) const override;
    [[nodiscard]] TimePoint deadline() const override { return close_deadline_; }

 private:
    enum Which { kLeg, kWire, kDoorbell };
    enum class Step { kMoved, kIdle, kStuck };

    bool read_cdc();
    Step send_some();
    Step receive_some();
    Step deliver(std::uint32_t available, bool urgent);
    void publish_producer();
    void publish_consumer();
    void check_wire();
    void advance_close(TimePoint now);
    void finish(Reason reason);

    Parts parts_;
    Poller* poller_ = nullptr;
    Poller::Source sources_[3];
    CloseMachine close_;

    // sending: cursors in the peer's ring
    cdc::Producer produced_;
    cdc::Cursor peer_consumed_;
    bool urgent_pending_ = false;      // the leg has an urgent byte ahead
    bool urgent_outstanding_ = false;  // it is in the ring and not consumed yet
    bool leg_readable_ = true;
    bool leg_ended_ = false;
    bool leg_failed_ = false;

    // receiving: cursors in the own ring
    cdc::Producer peer_produced_;
    cdc::Cursor consumed_;
    bool leg_writable_ = true;
    bool end_delivered_ = false;

    bool wire_event_ = false;
    bool wire_ended_ = false;
    bool ended_ = false;
    Reason end_reason_ = Reason::kNone;
    TimePoint close_deadline_ = TimePoint::max();
};

}  // namespace smc
