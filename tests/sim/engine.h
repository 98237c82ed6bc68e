// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An engine of the data path in simulated time: drives the same tasks as smc::Engine does.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "datapath/task.h"
#include "world.h"

namespace smc::sim {

class Engine final : public Poller {
 public:
    using OnEnd = std::function<void(const ConnectionEnd&)>;
    Engine(World& world, OnEnd on_end) : world_(world), on_end_(std::move(on_end)) {}

    void add(std::shared_ptr<ConnectionTask> connection);
    void add_task(std::shared_ptr<Task> task) { enlist(std::move(task), nullptr); }
    void kick(const std::shared_ptr<Task>& task) { ready(*task); }
    [[nodiscard]] std::size_t tasks() const { return entries_.size(); }

    bool watch(int fd, std::uint32_t events, Source& source) override;
    void unwatch(int fd) override;
    void ready(Task& task) override;
    [[nodiscard]] std::chrono::microseconds longest_spin(TimePoint) const override { return kLongestSpin; }
    void spin(Task& task, TimePoint until, Expects expects) override;

 private:
    static constexpr std::chrono::microseconds kLongestSpin{50};

    struct Entry {
        std::shared_ptr<Task> task;
        const ConnectionTask* connection;
        Timer deadline;
        bool queued = false;
        std::uint64_t runs = 0;
    };
    void enlist(std::shared_ptr<Task> task, const ConnectionTask* connection);
    void run(Task& task);
    void look(Task& task, std::uint64_t runs, TimePoint until);

    World& world_;
    OnEnd on_end_;
    std::map<Task*, std::unique_ptr<Entry>> entries_;  // never iterated: its order depends on addresses
};

}  // namespace smc::sim
