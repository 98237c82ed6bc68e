// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A thread of the data path: one epoll loop that drives tasks. There may be several (engines.h).
// add(), add_task() and kick() may be called from any thread.
//
// Written by hand, not with Asio: a turn is a pass over an array (what had events, and behind each what it called),
// tasks run in the order of their news whatever woke them, one epoll_wait() serves all, and nothing is allocated for an
// event. Asio's reactor posts a handler for each readiness, and has no place for "run again, after the others".
//
// A task that always has more to do waits for its turn behind others like it, and only one of them runs between two
// looks at the descriptors: who has little to do waits for one bounded run(), however many streams there are. While
// there is somebody who asks and answers, a stream that a descriptor or a look tells of news waits for its turn, too;
// what a link brings is delivered at once.
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
#include "os/result.h"
#include "os/unique_fd.h"

namespace smc {

class Engine final : private Poller {
 public:
    // Called on the engine's thread for every connection that ends.
    using OnEnd = std::function<void(const ConnectionEnd&)>;

    // `longest_spin`: for how long tasks may be looked at before they sleep; 0: not at all.
    // `busy_polls`: asked for news as long as the engine is awake.
    using BusyPolls = std::vector<std::shared_ptr<BusyPoll>>;
    static Result<std::unique_ptr<Engine>> start(OnEnd on_end, std::chrono::microseconds longest_spin = {},
                                                 BusyPolls busy_polls = {});
    ~Engine() override;
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    void add(std::shared_ptr<ConnectionTask> connection);
    // What is no connection: driven in the same way, ends when it says so.
    void add_task(std::shared_ptr<Task> task);
    // Runs a task of this engine soon: another thread has something for it. One that has ended is left alone.
    void kick(std::shared_ptr<Task> task);

    // Whether the thread has come round since the last call. To be asked now and then; once in a second is enough to
    // know of one that stands still.
    [[nodiscard]] bool comes_round();

    // That are in it, or on their way.
    [[nodiscard]] std::size_t tasks() const { return count_.load(std::memory_order_relaxed); }

    // Of its thread, since the start.
    [[nodiscard]] std::chrono::nanoseconds processor_time();

    // Aborts what is left (Reason::kStopped) and joins the thread. Nothing runs from here on. False: it did not end
    // in time, and whoever destroys the engine waits for it.
    bool stop(std::chrono::milliseconds timeout = std::chrono::milliseconds::max());

 private:
    static constexpr auto kShortFor = std::chrono::milliseconds(1);
    struct Entry {
        std::shared_ptr<Task> task;
        const ConnectionTask* connection = nullptr;  // the same, if it is one
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
    void had_little(Task& task) override;
    void had_much(Task& task) override { task.has_much_ = true; }
    [[nodiscard]] bool keep_it_short(TimePoint now) const override { return now < short_until_; }
    [[nodiscard]] std::chrono::microseconds longest_spin(TimePoint now) const override;
    void spin(Task& task, TimePoint until) override;
    void look_again(TimePoint now);
    void yield(TimePoint now);
    void loop();
    void enlist(Entry entry);
    void take_new();
    void touch(Task& task, TimePoint now);
    void wait_for_turn(Task& task);
    void run_next(TimePoint now);
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

    std::mutex mutex_;  // guards new_, kicked_, stop_ and stopped_
    std::vector<Entry> new_;
    std::vector<std::shared_ptr<Task>> kicked_;
    bool stop_ = false, stopped_ = false;
    std::condition_variable stopping_;
    std::atomic<std::uint64_t> asked_{0}, answered_{0};  // comes_round()
    std::atomic<std::size_t> count_{0};                  // tasks()

    // engine's thread only
    std::unordered_map<std::uint64_t, Entry> tasks_;  // by order
    std::uint64_t last_order_ = 0, round_ = 0;
    std::deque<Task*> ready_;        // have more to do: one of them has its turn each time round
    std::vector<Task*> touched_;     // had events in this turn
    std::vector<Task*> called_;      // another task has something for them
    std::vector<Task*> called_now_;  // those of them that run now
    std::vector<Task*> ended_;       // in this turn
    std::vector<Task*> spinning_;
    TimePoint no_spin_until_{}, short_until_{};
    Deadlines deadlines_;
    std::thread thread_;
};

}  // namespace smc
