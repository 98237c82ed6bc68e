// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The tasks that an engine drives, most of them connections.
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

class Engine;
class Task;

// The engine's interface to its tasks. Engine's thread only.
class Poller {
 public:
    // Where events of a descriptor go; `which`, 0 to 255, is the task's own name for the descriptor.
    struct Source {
        Task* task = nullptr;
        int which = 0;
    };
    virtual ~Poller() = default;
    // Reports edge-triggered readiness (EPOLLET is added), until the descriptor is closed or the task has ended. The
    // source must live as long as the task. False: out of memory or watches. Between fork() and exec() a child process
    // has a copy of every descriptor, so an event of one that the task has closed may still come.
    virtual bool watch(int fd, std::uint32_t events, Source& source) = 0;
    // Ends the watch of a descriptor that stays open.
    virtual void unwatch(int fd) = 0;
    // Asks for run() of a task soon, for a reason that no descriptor reports.
    virtual void ready(Task& task) = 0;
    // The task moved few bytes in this run(), like a request or a response: for a moment short_quantum() is true.
    virtual void was_interactive(Task&) {}
    // The task moved many bytes in this run(): while short_quantum() is true, it waits for its turn.
    virtual void was_bulk(Task&) {}
    // Whether each run() should move fewer bytes than usual.
    [[nodiscard]] virtual bool short_quantum(TimePoint) const { return false; }
    // How long a task may be busy-polled before it sleeps; 0: not at all.
    [[nodiscard]] virtual std::chrono::microseconds longest_spin(TimePoint) const { return {}; }
    // Busy-polls the task: calls look() repeatedly, until it returns true, an event comes, or the time is reached; then
    // run(). kEvents: the task expects an event of a descriptor. kMemory: it expects something that only look() sees,
    // so that events may be looked for less often.
    enum class Expects : std::uint8_t { kEvents, kMemory };
    virtual void spin(Task&, TimePoint, Expects) {}
};

class Task {
 public:
    Task() = default;
    Task(const Task&) = delete;
    Task& operator=(const Task&) = delete;
    virtual ~Task() = default;

    // Registers the task's descriptors. False: it failed; abort(kLimit) follows.
    virtual bool start(Poller& poller) = 0;
    // Ends the events of its descriptors, so that another engine can start() it. False: the task stays in this engine.
    virtual bool detach() { return false; }
    // Notes EPOLL events of the descriptor `which`; moving bytes is left to run().
    virtual void on_event(int which, std::uint32_t events) = 0;
    // Does a bounded amount of work. True: there is more to do now; call again after other tasks had their turn.
    virtual bool run(TimePoint now) = 0;
    // Ends the task at once, whatever its state; the application of a connection sees an error.
    virtual void abort(Reason reason) = 0;
    [[nodiscard]] virtual bool ended() const = 0;
    // When to call run() without an event.
    [[nodiscard]] virtual TimePoint deadline() const { return kNever; }
    // Called while the task is busy-polled. True: there is something to do, so run() it. Makes no system call.
    [[nodiscard]] virtual bool look() { return false; }
    // When the peer published the oldest data that the next run() takes, of the data that an event or look() has
    // reported; kNever: there is none, or the peer notes no time. Tasks that have such a time run in the order of these
    // times.
    [[nodiscard]] virtual TimePoint news_since() const { return kNever; }
    // The same for data that neither has reported yet.
    [[nodiscard]] virtual TimePoint untold_since() const { return kNever; }

    // The task's number in its engine, in the order of arrival; 0 before it is in one.
    [[nodiscard]] std::uint64_t order() const { return order_; }

 private:
    friend class Engine;
    std::atomic<Engine*> engine_{nullptr};  // the engine that drives it, or will
    std::uint64_t order_ = 0;
    std::uint64_t pass_ = 0;          // the engine's pass in which the task ran last
    bool waits_ = false;              // it waits for its turn
    bool is_bulk_ = false;            // was_bulk() was called last, and not was_interactive()
    bool called_ = false;             // another task called ready() for it
    TimePoint spins_until_ = kNever;  // kNever: it is not busy-polled
    Poller::Expects expects_ = Poller::Expects::kEvents;
};

// Relaxed counters that the engine's thread writes and any thread may read.
struct ConnectionStats {
    std::atomic<std::uint64_t> bytes_sent{0};      // application -> peer
    std::atomic<std::uint64_t> bytes_received{0};  // peer -> application
    std::atomic<std::uint64_t> signals{0};         // times the peer was signalled
    std::atomic<std::uint64_t> blocked{0};         // times the peer's buffer was full
    std::atomic<const char*> state{"ACTIVE"};      // names of RFC 7609 section 4.8, as smcss has them

    // Cursors, flags and connection state as packed by cdc::pack(). rx: what the peer wrote here, and how much of it
    // was delivered; tx: what was sent, and how much of it the peer has consumed.
    std::atomic<std::uint64_t> rx_producer{0}, rx_consumer{0}, tx_producer{0}, tx_consumer{0};

    TapPoint tap;  // copies the bytes of an SMC connection
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

    // Valid once the connection has ended.
    [[nodiscard]] ConnectionEnd end() const { return {id_, reason_}; }
    [[nodiscard]] bool ended() const final { return ended_; }

    const std::shared_ptr<ConnectionStats> stats;
    KeepaliveWish keepalive;  // the application's keepalive options
    // Whether the peer is known to be gone. Set by any thread, which then calls kick() for the task.
    std::atomic<bool> peer_is_gone{false};

 protected:
    // False: the connection had already ended.
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
