// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "world.h"

#include <cmath>
#include <cstdio>
#include <utility>

namespace smc::sim {

namespace {

// This many events at one time are an endless loop.
constexpr std::uint64_t kMostAtOnce = 100'000;

}  // namespace

const char* text(Mishap mishap) {
    switch (mishap) {
#define SMC_SIM_TEXT(name, text) \
    case Mishap::name:           \
        return text;
        SMC_SIM_MISHAPS(SMC_SIM_TEXT)
#undef SMC_SIM_TEXT
    }
    return "?";
}

void World::at(TimePoint when, std::function<void()> what) {
    queue_.push({std::max(when, now_), ++events_, std::move(what)});
}

void World::stop() {
    forbid_all();
    while (!queue_.empty()) {
        const auto events = std::exchange(queue_, {});
    }
}

bool World::run_until(TimePoint limit) {
    while (!queue_.empty() && queue_.top().when <= limit) {
        const Event event = queue_.top();
        queue_.pop();
        same_time_ = event.when == now_ ? same_time_ + 1 : 0;
        require(same_time_ < kMostAtOnce, "time stands still");
        now_ = event.when;
        event.what();
    }
    if (queue_.empty()) {
        return true;
    }
    now_ = limit;
    return false;
}

Delay World::some_time(Delay longest) {
    const double magnitudes = std::log10(static_cast<double>(longest.count()) / 1000.0);
    const double at = static_cast<double>(below(1'000'000)) / 1e6 * magnitudes;
    return Delay(static_cast<std::int64_t>(1000.0 * std::pow(10.0, at)));
}

bool World::strikes(Mishap mishap) {
    const auto it = allowed_.find(mishap);
    if (it == allowed_.end() || !chance(it->second)) {
        return false;
    }
    if (spared_.contains(++drawn_)) {
        return false;
    }
    struck_.insert(mishap);
    faults_++;
    tell("MISHAP " + std::to_string(drawn_) + ": " + sim::text(mishap));
    return true;
}

void World::tell(const std::string& line) const {
    if (tell_) {
        std::printf("%14.6f ms  %s\n", std::chrono::duration<double, std::milli>(now_.time_since_epoch()).count(),
                    line.c_str());
    }
}

void World::violated(const std::string& what) const {
    tell("VIOLATION: " + what);
    throw Violation(what);
}

Descriptor* World::descriptor(int fd) const {
    const auto it = descriptors_.find(fd);
    return it == descriptors_.end() ? nullptr : it->second;
}

void Descriptor::watch(std::function<void(std::uint32_t)> watcher) {
    watcher_ = std::move(watcher);
    if (level_() != 0) {
        changed();
    }
}

void Descriptor::changed() {
    if (news_) {
        return;
    }
    news_ = true;
    world_.after(world_.local(), [&world = world_, fd = fd_] {
        Descriptor* self = world.descriptor(fd);
        if (self == nullptr) {
            return;
        }
        self->news_ = false;
        const std::uint32_t level = self->level_();
        if (self->watcher_ && level != 0) {
            const auto watcher = self->watcher_;  // a copy: the call may replace watcher_
            watcher(level);
        }
    });
}

void Timer::set(TimePoint when) {
    if (when == when_) {
        return;
    }
    when_ = when;
    const std::uint64_t mine = ++*current_;
    if (when == kNever) {
        return;
    }
    world_.at(when, [this, mine, weak = std::weak_ptr(current_)] {
        const auto current = weak.lock();  // exists as long as the timer
        if (current && *current == mine) {
            when_ = kNever;
            then_();
        }
    });
}

}  // namespace smc::sim
