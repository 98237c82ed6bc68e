// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An SMC connection as a task. It carries out the steps that flow::Flow decides, on a leg, a CLC socket and a
// transport. The invariants are stated with the flow (smc/flow/flow.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>

#include "datapath/final_delivery.h"
#include "datapath/leg.h"
#include "datapath/spin.h"
#include "datapath/task.h"
#include "datapath/transport.h"
#include "smc/flow/flow.h"
#include "smc/times.h"

namespace smc {

class SmcConnection final : public ConnectionTask {
 public:
    struct Parts {
        std::unique_ptr<Leg> leg;
        std::unique_ptr<ClcSocket> clc;
        std::unique_ptr<Transport> transport;
        std::chrono::milliseconds close_timeout{10000};
        std::chrono::milliseconds reset_grace = Times{}.reset_grace, idle = Times{}.idle;
        // The application's SO_SNDBUF, as the kernel counts it; may change at any time. 0: the application has not set
        // it. nullptr: it has not, and will not.
        std::shared_ptr<const std::atomic<std::uint32_t>> send_buffer{};
        bool peer_has_agent = false;  // the CLC socket may be reset, instead of closed, after the peer's FIN
        bool announces = false;       // send a first CDC message at once: the peer's agent waits for it
    };

    SmcConnection(std::uint64_t id, std::shared_ptr<ConnectionStats> counters, Parts parts);

    bool start(Poller& poller) override;
    bool detach() override;
    void on_event(int which, std::uint32_t events) override;
    bool run(TimePoint now) override;
    void abort(Reason reason) override;
    [[nodiscard]] bool look() override;
    [[nodiscard]] TimePoint news_since() const override {
        return final_delivery_ || !may_have_news_ ? kNever : parts_.transport->news_since();
    }
    [[nodiscard]] TimePoint untold_since() const override {
        return final_delivery_ || may_have_news_ ? kNever : parts_.transport->news_since();
    }
    [[nodiscard]] TimePoint deadline() const override {
        return final_delivery_ ? final_delivery_->deadline()
                               : std::min({flow_.next_deadline(), idle_check_, options_at_});
    }

 private:
    enum Which { kLeg, kClc, kTransport };

    void follow_send_buffer();
    bool drive_flow(TimePoint now);
    void sleep(TimePoint now);
    void wake_up(TimePoint now);
    void load();
    [[nodiscard]] flow::PeerState news();
    void deliver(const flow::Receiving::Piece& piece);
    void take(const flow::Take& take);
    void look_at_clc_socket();
    void finish(const flow::End& end);
    void close_leg(Reason reason);
    void reset(Reason reason);
    void continue_final_delivery(TimePoint now);
    bool look_for_idleness(TimePoint now);
    bool ask_stalled_reader(TimePoint now);
    void set_late_options(TimePoint now);
    void pass_keepalive_on();
    void show() const;

    Parts parts_;
    flow::Flow flow_;
    flow::PeerState seen_;
    std::uint32_t window_ = 0;  // the flow's window
    KeepaliveTerms passed_on_;  // the terms that the CLC socket has
    bool waits_ = false;        // at the last idle check the peer had not consumed everything
    bool waited_ = false;       // the value of waits_ that the CLC socket has
    std::uint32_t moved_ = 0;   // bytes moved in this run
    std::uint32_t bytes_per_run_ = 0;
    TimePoint idle_check_ = kNever;                 // the next idle check; kNever: none until bytes are moved
    TimePoint options_at_ = kNever;                 // when set_late_options() has something to do
    bool clc_kept_ = false;                         // ClcSocket::keep_alive() was called
    bool leg_was_heard_ = false;                    // it has had an event
    bool leg_ended_ = false;                        // Leg::look_for_its_end() is to be called
    std::uint64_t sent_at_check_ = 0;               // bytes sent until the last check
    std::uint64_t consumed_at_check_ = UINT64_MAX;  // the peer's consumer cursor at the last check
    TimePoint ask_at_{};                            // when to ask for that cursor next
    std::chrono::milliseconds ask_pause_{};         // and how long until the time after that
    std::optional<FinalDelivery> final_delivery_;   // once set, the transport has stopped
    Reason end_reason_ = Reason::kNone;             // how the connection ends after final_delivery_
    Poller::Source sources_[3];
    Poller* poller_ = nullptr;
    // Which side the task waits for while it sleeps: the peer, or its own application.
    enum Pause { kOfPeer, kOfApplication, kPauses };
    Spin spin_[kPauses];
    Pause pause_ = kOfPeer;
    Pause next_pause_ = kOfPeer;           // the kind of the next pause: it depends on the direction that moved last
    bool sleeps_ = false, spins_ = false;  // spins_: it is busy-polled
    bool woken_ = false;                   // an event has come since the last run(), or look() has seen news
    bool armed_ = false;                   // the transport will send an event for what comes next
    bool may_have_news_ = true;            // the peer may have published something: see news()
};

}  // namespace smc
