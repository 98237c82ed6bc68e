// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The data path's thread: one epoll loop that drives tasks. add() may be called from any thread; flows live and die on
// the engine's own.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "datapath/flow.h"
#include "os/result.h"
#include "os/unique_fd.h"

namespace smc {

class Engine final : private Poller {
 public:
    // Called on the engine's thread for every flow that ends.
    using OnEnd = std::function<void(const FlowEnd&)>;

    static Result<std::unique_ptr<Engine>> start(OnEnd on_end);
    // Aborts what is left (Reason::kStopped) and joins the thread.
    ~Engine() override;
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    void add(std::shared_ptr<Flow> flow);
    // What is no flow: driven in the same way, ends when it says so.
    void add_task(std::shared_ptr<Task> task);
    // Runs a task of this engine soon: another thread has something for it. One that has ended is left alone.
    void kick(std::shared_ptr<Task> task);

 private:
    struct Entry {
        std::shared_ptr<Task> task;
        Flow* flow = nullptr;  // the same, if it is one
    };

    explicit Engine(OnEnd on_end) : on_end_(std::move(on_end)) {}

    bool watch(int fd, std::uint32_t events, Source& source) override;
    void unwatch(int fd) override;
    void ready(Task& task) override { called_.push_back(&task); }
    void loop();
    void enlist(Entry entry);
    void take_new();
    void run_all(std::vector<Task*>& tasks, Task::TimePoint now);
    void run_task(Task& task, Task::TimePoint now);
    void told_end(Task& task);
    void bury();
    void wake();
    [[nodiscard]] int wait_ms(Task::TimePoint now) const;

    OnEnd on_end_;
    UniqueFd epoll_, wake_;
    Source wake_source_{};

    std::mutex mutex_;  // guards new_, kicked_ and stop_
    std::vector<Entry> new_;
    std::vector<std::shared_ptr<Task>> kicked_;
    bool stop_ = false;

    // engine's thread only
    std::unordered_map<Task*, Entry> tasks_;
    std::vector<Task*> ready_;    // have more to do
    std::vector<Task*> touched_;  // had events in this turn
    std::vector<Task*> called_;   // another task has something for them
    std::vector<Task*> dead_;
    std::unordered_map<Task*, Task::TimePoint> deadlines_;
    std::thread thread_;
};

}  // namespace smc
