// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which task the engine runs next.
#include <sched.h>

#include <algorithm>

#include "datapath/engine.h"
#include "os/clock.h"

namespace smc {

namespace {
// After a task that had more to do, tasks are not busy-polled for this long.
constexpr auto kBusyFor = std::chrono::milliseconds(2);
// In an iteration that served a request or response, streams are passed over until this long after one of them ran.
constexpr auto kStreamsRest = std::chrono::microseconds(50);
}  // namespace

void Engine::wait_for_turn(Task& task) {
    if (!std::exchange(task.waits_, true)) {
        ready_.push_back(&task);
    }
}

void Engine::touch(Task& task, TimePoint now) {
    if (task.waits_) {
        return;
    }
    if (task.is_bulk_ && short_quantum(now)) {
        wait_for_turn(task);
    } else {
        touched_.push_back(&task);
    }
}

// kShortFor begins now and not at the beginning of this iteration, which streams may have made long.
void Engine::was_interactive(Task& task) {
    task.is_bulk_ = false;
    served_interactive_ = true;
    short_until_ = os::now() + kShortFor;
}

// Called after the tasks with events ran. If one of them served a request or response while tasks wait for their turn,
// the application's thread that gets it may be waiting for this processor, so this thread yields it. True: streams are
// passed over in this iteration, so that a quick answer is served before they run. An engine that polls for doorbells
// (ivshmem) does not yield, because it would notice no doorbell meanwhile.
bool Engine::defer_streams(TimePoint& now) {
    if (!std::exchange(served_interactive_, false) || ready_.empty()) {
        return false;
    }
    if (busy_polls_.empty() && interactive_yields_.allows(now)) {
        const auto before = os::now();
        ::sched_yield();
        now = os::now();
        interactive_yields_.took(now - before, now);
    }
    return now < streamed_at_ + kStreamsRest;
}

// `rest`: streams are passed over.
void Engine::run_next(TimePoint now, bool rest) {
    const auto next =
        rest ? std::ranges::find_if(ready_, [](const Task* task) { return !task->is_bulk_; }) : ready_.begin();
    if (next == ready_.end()) {
        return;
    }
    Task* task = *next;
    ready_.erase(next);
    task->waits_ = false;
    run_task(*task, now);
    if (task->is_bulk_) {
        streamed_at_ = os::now();
    }
}

// Runs each task once, in the order of their first events: an application may rely on being able to read first what was
// sent first, even on two different connections.
void Engine::run_all(const std::vector<Task*>& tasks, TimePoint now) {
    pass_++;
    for (Task* task : tasks) {
        if (std::exchange(task->pass_, pass_) != pass_) {
            run_task(*task, now);
            run_called(now);
        }
    }
}

// Data that a link received is delivered at once, before tasks with later events run. A task for which ready() is
// called meanwhile waits for its turn.
void Engine::run_called(TimePoint now) {
    called_now_.swap(called_);
    for (Task* task : called_now_) {
        task->called_ = false;
    }
    for (Task* task : called_now_) {
        run_task(*task, now);
    }
    called_now_.clear();
    for (Task* task : called_) {
        task->called_ = false;
        wait_for_turn(*task);
    }
    called_.clear();
}

void Engine::run_task(Task& task, TimePoint now) {
    if (std::exchange(task.spins_until_, kNever) != kNever) {
        std::erase(spinning_, &task);
    }
    const bool more = task.run(now);
    if (task.ended()) {
        ended_.push_back(&task);
        return;
    }
    if (more) {
        wait_for_turn(task);
        no_spin_until_ = std::max(no_spin_until_, now + kBusyFor);
    }
    deadlines_.set(task.order(), task.deadline());
}

}  // namespace smc
