// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What an engine drives: tasks, most of them connections.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "datapath/keepalive_wish.h"
#include "datapath/tap.h"
#include "smc/time.h"
#include "smc/wire/reason.h"

namespace smc {

class Task;

// The engine as its tasks see it. Engine's thread only.
class Poller {
 public:
    // Edge-triggered readiness; `which` is the task's own name for the descriptor.
    struct Source {
        Task* task = nullptr;
        int which = 0;
    };
    virtual ~Poller() = default;
    // EPOLLET is added. The source must live as long as the task. False: out of memory or watches.
    virtual bool watch(int fd, std::uint32_t events, Source& source) = 0;
    // Needed where closing does not do it: the open file is shared with the peer, or kept by somebody else.
    virtual void unwatch(int fd) = 0;
    // Something happened to this task that no descriptor tells: run() it soon.
    virtual void ready(Task& task) = 0;
    // What a task had to do. Little, as one who asks and answers: those with much should keep it short for a moment,
    // and wait for their turn.
    virtual void had_little(Task&) {}
    virtual void had_much(Task&) {}
    [[nodiscard]] virtual bool keep_it_short(TimePoint) const { return false; }
    // For how long it may be looked at before it sleeps; 0: not at all.
    [[nodiscard]] virtual std::chrono::microseconds longest_spin(TimePoint) const { return {}; }
    // look() at it again and again until then, from its next event or news on no more. It is run() when that is over.
    virtual void spin(Task&, TimePoint) {}
};

class Task {
 public:
    Task() = default;
    Task(const Task&) = delete;
    Task& operator=(const Task&) = delete;
    virtual ~Task() = default;

    // Registers its descriptors. False: give up; abort(kLimit) follows.
    virtual bool start(Poller& poller) = 0;
    // Notes what happened (EPOLLIN and the like); moving bytes is left to run().
    virtual void on_event(int which, std::uint32_t events) = 0;
    // Moves a bounded amount. True: more could be done right now, call again after the others.
    virtual bool run(TimePoint now) = 0;
    // Ends at once, whatever the state; a connection with an error at the application.
    virtual void abort(Reason reason) = 0;
    [[nodiscard]] virtual bool ended() const = 0;
    // When to call run() although nothing happens.
    [[nodiscard]] virtual TimePoint deadline() const { return kNever; }
    // While it spins: there is news, so run() it. Without a system call.
    [[nodiscard]] virtual bool look() { return false; }

    // Its number among those of its engine, in the order in which they came there. 0 before.
    [[nodiscard]] std::uint64_t order() const { return order_; }

 private:
    friend class Engine;
    std::uint64_t order_ = 0;
    std::uint64_t round_ = 0;         // of the engine, in which it ran last
    bool waits_ = false;              // for its turn, with more to do
    bool has_much_ = false;           // had, when it ran last
    bool called_ = false;             // by another task
    TimePoint spins_until_ = kNever;  // kNever: it does not
};

// Written by the engine's thread, read by anybody. Relaxed counters.
struct ConnectionStats {
    std::atomic<std::uint64_t> bytes_sent{0};      // application -> peer
    std::atomic<std::uint64_t> bytes_received{0};  // peer -> application
    std::atomic<std::uint64_t> signals{0};         // times the peer was signalled
    std::atomic<std::uint64_t> blocked{0};         // times the peer's buffer was full
    std::atomic<const char*> state{"ACTIVE"};      // names of RFC 7609 section 4.8, as smcss has them

    // Cursors, flags and connection state as cdc::pack() has them: what the peer wrote here and what was delivered of
    // it, what was sent and what the peer took of it.
    std::atomic<std::uint64_t> rx_producer{0}, rx_consumer{0}, tx_producer{0}, tx_consumer{0};

    TapPoint tap;  // of what SMC moves
};

// How a connection ended in the data path. kNone: in order, everything delivered both ways.
struct ConnectionEnd {
    std::uint64_t id = 0;
    Reason reason = Reason::kNone;
};

// A task that is one connection.
class ConnectionTask : public Task {
 public:
    ConnectionTask(std::uint64_t id, std::shared_ptr<ConnectionStats> counters) : stats(std::move(counters)), id_(id) {}

    // Once it ended.
    [[nodiscard]] ConnectionEnd end() const { return {id_, reason_}; }
    [[nodiscard]] bool ended() const final { return ended_; }

    const std::shared_ptr<ConnectionStats> stats;
    KeepaliveWish keepalive;  // of the application
    // Whether its peer is known to be gone. From any thread; then kick() the task.
    std::atomic<bool> peer_is_gone{false};

 protected:
    // False: it had already ended.
    bool set_ended(Reason reason) {
        if (ended_) {
            return false;
        }
        ended_ = true;
        reason_ = reason;
        return true;
    }

 private:
    std::uint64_t id_;
    bool ended_ = false;
    Reason reason_ = Reason::kNone;
};

}  // namespace smc
