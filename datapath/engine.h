// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The data path's thread: one epoll loop that drives flows. add() and abort() may be called from any
// thread; flows live and die on the engine's own.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "datapath/flow.h"
#include "smc/result.h"
#include "smc/unique_fd.h"

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

    void add(std::unique_ptr<Flow> flow);

 private:
    explicit Engine(OnEnd on_end) : on_end_(std::move(on_end)) {}

    bool watch(int fd, std::uint32_t events, Source& source) override;
    void unwatch(int fd) override;
    void loop();
    void take_new();
    void run_flow(Flow& flow, Flow::TimePoint now);
    void bury();
    void wake();
    [[nodiscard]] int wait_ms(Flow::TimePoint now) const;

    OnEnd on_end_;
    UniqueFd epoll_, wake_;
    Source wake_source_{};

    std::mutex mutex_;  // guards new_ and stop_
    std::vector<std::unique_ptr<Flow>> new_;
    bool stop_ = false;

    // engine's thread only
    std::unordered_map<std::uint64_t, std::unique_ptr<Flow>> flows_;
    std::vector<Flow*> ready_;    // have more to do
    std::vector<Flow*> touched_;  // had events in this turn
    std::vector<std::uint64_t> dead_;
    std::unordered_map<std::uint64_t, Flow::TimePoint> deadlines_;
    std::thread thread_;
};

}  // namespace smc
