// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A thread of the data path: one epoll loop that drives tasks. There may be several (engines.h).
// add(), add_task(), move() and kick() may be called from any thread.
//
// Written by hand, not with Asio. An iteration of the loop runs an array of the tasks that had events; the tasks
// that one of them calls ready run right after it. Tasks run in the order of their events, whatever woke them, and
// tasks whose news only look() sees are sorted into that order; one epoll_wait() serves all; nothing is allocated for
// an event. Asio's reactor posts a handler for each readiness, and cannot run a task again after the others.
//
// A task with more to do (a stream) waits in a queue, from which one task runs between two calls of epoll_wait(): a
// task with little to do waits for at most one bounded run(), however many streams there are. While a request-response
// connection is active, a stream that an event or look() woke queues up, too; after a request or response, if others
// wait, the thread yields its processor, and streams that wait may be passed over for some tens of microseconds. Data
// that a link has received is delivered at once.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "datapath/busy_poll.h"
#include "datapath/deadlines.h"
#include "datapath/task.h"
#include "datapath/yield_cost.h"
#include "os/result.h"
#include "os/unique_fd.h"

namespace smc {

class Engine final : private Poller {
 public:
    // Called on the engine's thread for every connection that ends.
    using OnEnd = std::function<void(const ConnectionEnd&)>;

    using BusyPolls = std::vector<std::shared_ptr<BusyPoll>>;
    // `longest_spin`: how long a task may be busy-polled before it sleeps; 0: not at all.
    // `busy_polls`: polled in each iteration of the loop.
    static Result<std::unique_ptr<Engine>> start(OnEnd on_end, std::chrono::microseconds longest_spin = {},
                                                 BusyPolls busy_polls = {});
    ~Engine() override;
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    void add(std::shared_ptr<ConnectionTask> connection);
    // Adds a task that is no connection. It is driven in the same way, until its ended() is true.
    void add_task(std::shared_ptr<Task> task);
    // Runs a task soon, because another thread has something for it: a task of this engine, or one that has moved from
    // here to another engine. Ignores a task that has ended or is in no engine yet.
    void kick(std::shared_ptr<Task> task);
    // Soon moves a task of this engine, or one that has moved from here, to another engine, which must live as long as
    // this one. Ignores a task that has ended, is in no engine yet or cannot be detached (Task::detach()).
    void move(std::shared_ptr<Task> task, Engine& to);

    // Whether the thread has completed an iteration since the last call. Called periodically; once a second is enough
    // to notice a thread that hangs.
    [[nodiscard]] bool has_iterated();

    // The number of tasks, including those that were added and not started yet.
    [[nodiscard]] std::size_t tasks() const { return count_.load(std::memory_order_relaxed); }

    // How many tasks have left for another engine.
    [[nodiscard]] std::uint64_t moved() const { return moved_.load(std::memory_order_relaxed); }

    // The time of those iterations of the loop in which there was something to run, since the start.
    [[nodiscard]] std::chrono::nanoseconds busy_time() const {
        return std::chrono::nanoseconds(busy_.load(std::memory_order_relaxed));
    }

    // CPU time of the engine's thread since its start.
    [[nodiscard]] std::chrono::nanoseconds processor_time();

    // Makes the thread end soon; stop() waits for it.
    void begin_stop();
    // Aborts the tasks that are left (Reason::kStopped) and joins the thread; no task runs after that. False: the
    // thread did not end in time; the destructor will wait for it.
    bool stop(std::chrono::milliseconds timeout = std::chrono::milliseconds::max());

 private:
    static constexpr auto kShortFor = std::chrono::milliseconds(1);
    static constexpr auto kYieldRest = std::chrono::milliseconds(20);
    struct Entry {
        std::shared_ptr<Task> task;
        const ConnectionTask* connection = nullptr;  // the same task, if it is a connection
    };

    Engine(OnEnd on_end, std::chrono::microseconds longest_spin, BusyPolls busy_polls)
        : on_end_(std::move(on_end)), longest_spin_(longest_spin), busy_polls_(std::move(busy_polls)) {}

    bool watch(int fd, std::uint32_t events, Source& source) override;
    void unwatch(int fd) override;
    void ready(Task& task) override {
        if (!std::exchange(task.called_, true)) {
            called_.push_back(&task);
        }
    }
    void was_interactive(Task& task) override;
    void was_bulk(Task& task) override { task.is_bulk_ = true; }
    [[nodiscard]] bool short_quantum(TimePoint now) const override { return now < short_until_; }
    [[nodiscard]] std::chrono::microseconds longest_spin(TimePoint now) const override;
    void spin(Task& task, TimePoint until, Expects expects) override;
    void look(TimePoint now);
    void touch_spinning(TimePoint now);
    void put_in_order();
    void yield(TimePoint now);
    void loop();
    bool enlist(Entry& entry);
    void take_new();
    void give_away(Task& task, Engine& to);
    void touch(Task& task, TimePoint now);
    void wait_for_turn(Task& task);
    bool defer_streams(TimePoint& now);
    void run_next(TimePoint now, bool rest);
    void run_all(const std::vector<Task*>& tasks, TimePoint now);
    void run_called(TimePoint now);
    void run_task(Task& task, TimePoint now);
    void forget_ended();
    void end_all();
    void wake();
    [[nodiscard]] int wait_ms(TimePoint now) const;

    OnEnd on_end_;
    std::chrono::microseconds longest_spin_;
    BusyPolls busy_polls_;
    UniqueFd epoll_, wake_;
    Source wake_source_{};

    std::mutex mutex_;  // guards new_, kicked_, moving_, stop_, closed_ and stopped_
    std::vector<Entry> new_;
    std::vector<std::shared_ptr<Task>> kicked_;
    std::vector<std::pair<std::shared_ptr<Task>, Engine*>> moving_;
    bool stop_ = false, stopped_ = false;
    bool closed_ = false;  // takes no new tasks any more
    std::condition_variable stopping_;
    std::atomic<std::uint64_t> asked_{0}, answered_{0};  // for has_iterated()
    std::atomic<std::size_t> count_{0};                  // for tasks()
    std::atomic<std::uint64_t> moved_{0};
    std::atomic<std::chrono::nanoseconds::rep> busy_{0};

    // Engine's thread only.
    std::unordered_map<std::uint64_t, Entry> tasks_;  // key: Task::order()
    std::uint64_t last_order_ = 0, pass_ = 0;
    std::deque<Task*> ready_;          // tasks that wait for their turn; one runs in each iteration
    std::vector<Task*> touched_;       // tasks that had events in this iteration
    std::vector<Task*> called_;        // tasks for which another task called ready()
    std::vector<Task*> called_now_;    // tasks of called_ that run now
    std::vector<Task*> ended_;         // tasks that ended in this iteration
    std::vector<Task*> spinning_;      // tasks that are busy-polled
    std::vector<Task*> seen_;          // those of them whose look() has returned true in this iteration
    std::vector<std::size_t> places_;  // for put_in_order()
    std::vector<std::pair<TimePoint, Task*>> by_news_;  // for put_in_order()
    bool served_interactive_ = false;                   // was_interactive() was called since defer_streams()
    TimePoint streamed_at_{};                           // when a stream of ready_ ran last
    bool alone_ = false;  // no other thread wanted this processor when this thread yielded it last
    // The cost of yields while tasks are busy-polled, and of yields after a request or response. The latter may take
    // longer: beside streams, they let programs run that the streams wait for.
    YieldCost spinning_yields_{{std::chrono::microseconds(100), std::chrono::microseconds(400), kYieldRest, true}};
    YieldCost interactive_yields_{{std::chrono::milliseconds(1), std::chrono::milliseconds(2), kYieldRest, false}};
    TimePoint no_spin_until_{}, short_until_{};
    Deadlines deadlines_;
    std::thread thread_;
};

}  // namespace smc
