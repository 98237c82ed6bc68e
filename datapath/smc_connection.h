// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An SMC connection as a task: does what flow::Flow says, on a leg, a CLC socket and a transport. The decisions and
// their invariants are the flow's (smc/flow/flow.h).
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "datapath/last_words.h"
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
        // SO_SNDBUF of the application, as the kernel counts; 0: it has not chosen it. It may change at any time.
        // nullptr: it has not, and will not.
        std::shared_ptr<const std::atomic<std::uint64_t>> send_buffer{};
        bool peer_has_agent = false;  // its CLC socket may be reset when it has said that it is done
        bool speaks = false;          // the peer waits for a first message before its application hears of us
    };

    SmcConnection(std::uint64_t id, std::shared_ptr<ConnectionStats> counters, Parts parts);

    bool start(Poller& poller) override;
    void on_event(int which, std::uint32_t events) override;
    bool run(TimePoint now) override;
    void abort(Reason reason) override;
    [[nodiscard]] TimePoint deadline() const override {
        return last_words_ ? last_words_->deadline() : std::min(flow_.next_deadline(), idle_check_);
    }

 private:
    enum Which { kLeg, kClc, kTransport };

    void follow_send_buffer();
    bool turn(TimePoint now);
    void sleep(TimePoint now);
    void wake_up(TimePoint now);
    void load();
    [[nodiscard]] flow::PeerState news();
    void deliver(const flow::Receiving::Piece& piece);
    void take(const flow::Take& take);
    void look_at_clc_socket();
    void finish(const flow::End& end);
    void reset(Reason reason);
    void speak_last_words(TimePoint now);
    bool look_for_idleness(TimePoint now);
    bool ask_who_stands_still(TimePoint now);
    void pass_keepalive_on();
    void show() const;

    Parts parts_;
    flow::Flow flow_;
    flow::PeerState seen_;
    std::uint32_t window_ = 0;  // of the flow
    KeepaliveTerms passed_on_;
    bool waits_ = false;       // for the peer to consume, at the last check
    bool waited_ = false;      // ... when it was passed on
    std::uint32_t moved_ = 0;  // bytes, in this run
    std::uint32_t bytes_per_run_ = 0;
    TimePoint idle_check_ = kNever;                 // while it is busy, and once more
    std::uint64_t sent_at_check_ = 0;               // bytes, at the last one
    std::uint64_t consumed_at_check_ = UINT64_MAX;  // the peer's cursor then
    TimePoint ask_at_{};                            // for that cursor, and how long after that again
    std::chrono::milliseconds ask_pause_{};
    std::optional<LastWords> last_words_;  // its transport has stopped
    Reason end_reason_ = Reason::kNone;    // with them
    Poller::Source sources_[3];
    Poller* poller_ = nullptr;
    // What it waits for: the peer, or its application.
    enum Pause { kOfPeer, kOfApplication, kPauses };
    Spin spin_[kPauses];
    Pause pause_ = kOfPeer;
    Pause next_pause_ = kOfPeer;           // after what was moved last
    bool sleeps_ = false, spins_ = false;  // spins_: it is being looked at
    bool woken_ = false;                   // by an event
    bool heard_ = true;                    // of news from the peer, or had no chance to
};

}  // namespace smc
