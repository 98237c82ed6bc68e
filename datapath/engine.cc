// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/engine.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>

namespace smc {

Result<std::unique_ptr<Engine>> Engine::start(OnEnd on_end) {
    std::unique_ptr<Engine> engine(new Engine(std::move(on_end)));
    engine->epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
    engine->wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!engine->epoll_ || !engine->wake_) {
        return last_error("creating the data path's epoll");
    }
    if (!engine->watch(engine->wake_.get(), EPOLLIN, engine->wake_source_)) {
        return last_error("watching the data path's doorbell");
    }
    engine->thread_ = std::thread([raw = engine.get()] { raw->loop(); });
    return engine;
}

Engine::~Engine() {
    if (thread_.joinable()) {
        {
            const std::lock_guard lock(mutex_);
            stop_ = true;
        }
        wake();
        thread_.join();
    }
}

void Engine::add(std::unique_ptr<Flow> flow) {
    {
        const std::lock_guard lock(mutex_);
        new_.push_back(std::move(flow));
    }
    wake();
}

void Engine::wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

bool Engine::watch(int fd, std::uint32_t events, Source& source) {
    epoll_event event{};
    event.events = events | EPOLLET;
    event.data.ptr = &source;
    return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void Engine::unwatch(int fd) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void Engine::take_new() {
    std::vector<std::unique_ptr<Flow>> fresh;
    {
        const std::lock_guard lock(mutex_);
        fresh.swap(new_);
    }
    for (auto& flow : fresh) {
        Flow* raw = flow.get();
        flows_.emplace(raw->id(), std::move(flow));
        if (!raw->start(*this)) {
            raw->abort(Reason::kLimit);
        }
        ready_.push_back(raw);
    }
}

void Engine::run_flow(Flow& flow, Flow::TimePoint now) {
    const bool more = flow.run(now);
    FlowEnd end;
    if (flow.ended(end)) {
        on_end_(end);
        dead_.push_back(flow.id());
        return;
    }
    if (more) {
        ready_.push_back(&flow);
    }
    if (flow.deadline() == Flow::TimePoint::max()) {
        deadlines_.erase(flow.id());
    } else {
        deadlines_[flow.id()] = flow.deadline();
    }
}

// Flows die only between turns: an event of this turn may still name them.
void Engine::bury() {
    for (const auto id : dead_) {
        flows_.erase(id);
        deadlines_.erase(id);
    }
    dead_.clear();
}

int Engine::wait_ms(Flow::TimePoint now) const {
    if (!ready_.empty()) {
        return 0;
    }
    auto next = Flow::TimePoint::max();
    for (const auto& [id, deadline] : deadlines_) {
        next = std::min(next, deadline);
    }
    if (next == Flow::TimePoint::max()) {
        return -1;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - now).count();
    return static_cast<int>(std::clamp<decltype(left)>(left, 0, 60000));
}

void Engine::loop() {
    std::array<epoll_event, 128> events{};
    for (;;) {
        auto now = std::chrono::steady_clock::now();
        const int n = ::epoll_wait(epoll_.get(), events.data(), events.size(), wait_ms(now));
        now = std::chrono::steady_clock::now();

        touched_.clear();
        touched_.swap(ready_);
        for (int i = 0; i < n; i++) {
            const auto& source = *static_cast<Source*>(events[static_cast<std::size_t>(i)].data.ptr);
            if (source.flow != nullptr) {
                source.flow->on_event(source.which, events[static_cast<std::size_t>(i)].events);
                touched_.push_back(source.flow);
            }
        }
        for (const auto& [id, deadline] : deadlines_) {
            if (deadline <= now) {
                touched_.push_back(flows_.at(id).get());
            }
        }
        std::sort(touched_.begin(), touched_.end());
        touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
        for (Flow* flow : touched_) {
            run_flow(*flow, now);
        }
        bury();
        take_new();
        const std::lock_guard lock(mutex_);
        if (stop_) {
            break;
        }
    }
    for (auto& [id, flow] : flows_) {
        flow->abort(Reason::kStopped);
        on_end_({id, Reason::kStopped});
    }
    flows_.clear();
}

}  // namespace smc
