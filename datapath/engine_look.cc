// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Busy-polling: which tasks are looked at and for how long, and the order of what is seen.
#include <sched.h>

#include <algorithm>
#include <iterator>

#include "datapath/engine.h"
#include "os/clock.h"

namespace smc {

namespace {

constexpr auto kAlone = std::chrono::microseconds(6);  // a sched_yield() of this length let nobody else run
// How long tasks are busy-polled before events are looked for, which costs a system call.
constexpr auto kLookFor = std::chrono::microseconds(20);
constexpr unsigned kLooksPerTime = 16;  // how often they are looked at for each look at the clock

void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}
}  // namespace

void Engine::spin(Task& task, TimePoint until, Expects expects) {
    if (std::exchange(task.spins_until_, until) == kNever) {
        spinning_.push_back(&task);
    }
    task.expects_ = expects;
}

// Looks at the tasks that are busy-polled, once; or, if no event and no other thread is to be expected, for a while.
// Called before epoll_wait(), which then returns all events that came before what look() has seen. See
// touch_spinning().
void Engine::look(TimePoint now) {
    seen_.clear();
    if (spinning_.empty()) {
        return;
    }
    const bool stays = alone_ && ready_.empty() && std::ranges::all_of(spinning_, [](const Task* task) {
                           return task->expects_ == Expects::kMemory;
                       });
    TimePoint until = now + kLookFor;
    for (const Task* task : spinning_) {
        until = std::min(until, task->spins_until_);
    }
    do {
        for (unsigned looks = 0; looks < kLooksPerTime && seen_.empty(); looks++) {
            std::ranges::copy_if(spinning_, std::back_inserter(seen_), [](Task* task) { return task->look(); });
            if (!stays) {
                return;
            }
            cpu_relax();
        }
    } while (seen_.empty() && os::now() < until);
}

// Called after epoll_wait(). Adds three kinds of tasks to this iteration: those whose look() has seen news, those whose
// time for busy-polling is over, and those whose peer published after their look(), but before the latest news of this
// iteration. So put_in_order() has everything that was published before that latest news.
void Engine::touch_spinning(TimePoint now) {
    for (Task* task : seen_) {
        touch(*task, now);
    }
    TimePoint latest = TimePoint::min();
    for (const Task* task : touched_) {
        const TimePoint since = task->news_since();
        latest = since == kNever ? latest : std::max(latest, since);
    }
    for (Task* task : spinning_) {
        if ((task->untold_since() <= latest && task->look()) || now >= task->spins_until_) {
            touch(*task, now);
        }
    }
}

// News that look() has seen come without an event, so the order of events is not enough: tasks whose peer says when it
// published its news are sorted by that time. Other tasks keep their places.
void Engine::put_in_order() {
    places_.clear();
    by_news_.clear();
    for (std::size_t place = 0; place < touched_.size(); place++) {
        if (const TimePoint since = touched_[place]->news_since(); since != kNever) {
            places_.push_back(place);
            by_news_.emplace_back(since, touched_[place]);
        }
    }
    if (places_.size() < 2) {
        return;
    }
    std::ranges::stable_sort(by_news_, {}, &std::pair<TimePoint, Task*>::first);
    for (std::size_t i = 0; i < places_.size(); i++) {
        touched_[places_[i]] = by_news_[i].second;
    }
}

// The process whose data a task waits for may need this processor. If other threads keep the processor for long, a
// thread that sleeps gets it back sooner than one that yields, so busy-polling stops for a while.
void Engine::yield(TimePoint now) {
    ::sched_yield();
    const auto back = os::now();
    alone_ = back - now <= kAlone;
    spinning_yields_.took(back - now, back);
}

std::chrono::microseconds Engine::longest_spin(TimePoint now) const {
    return now < no_spin_until_ || !spinning_yields_.allows(now) ? std::chrono::microseconds(0) : longest_spin_;
}

}  // namespace smc
