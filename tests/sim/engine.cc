// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "engine.h"

#include <algorithm>

namespace smc::sim {

void Engine::add(std::shared_ptr<ConnectionTask> connection) {
    const ConnectionTask* raw = connection.get();
    enlist(std::move(connection), raw);
}

void Engine::enlist(std::shared_ptr<Task> task, const ConnectionTask* connection) {
    Task* raw = task.get();
    entries_.emplace(
        raw, std::make_unique<Entry>(Entry{std::move(task), connection, Timer(world_, [this, raw] { ready(*raw); })}));
    if (!raw->start(*this)) {
        raw->abort(Reason::kLimit);
    }
    ready(*raw);
}

bool Engine::watch(int fd, std::uint32_t events, Source& source) {
    Descriptor* descriptor = world_.descriptor(fd);
    if (descriptor == nullptr) {
        return false;
    }
    descriptor->watch([this, events, &source](std::uint32_t level) {
        if (entries_.contains(source.task)) {
            source.task->on_event(source.which, level & (events | 0x018));  // EPOLLERR and EPOLLHUP always
            ready(*source.task);
        }
    });
    return true;
}

void Engine::unwatch(int fd) {
    if (Descriptor* descriptor = world_.descriptor(fd)) {
        descriptor->unwatch();
    }
}

void Engine::ready(Task& task) {
    const auto it = entries_.find(&task);
    if (it == entries_.end() || it->second->queued) {
        return;
    }
    it->second->queued = true;
    world_.after(world_.local(), [this, raw = &task, weak = std::weak_ptr(it->second->task)] {
        if (const auto there = weak.lock()) {
            run(*raw);
        }
    });
}

void Engine::spin(Task& task, TimePoint until, Expects) {
    look(task, entries_.at(&task)->runs, until);
}

// Looks for news of the task now and then, until the task runs.
void Engine::look(Task& task, std::uint64_t runs, TimePoint until) {
    const auto soon = std::min<Delay>(world_.some_time(kLongestSpin), until - world_.now());
    world_.after(soon, [this, raw = &task, runs, until, weak = std::weak_ptr(entries_.at(&task)->task)] {
        const auto there = weak.lock();
        const auto it = entries_.find(raw);
        if (!there || it == entries_.end() || it->second->runs != runs) {
            return;
        }
        if (raw->look() || world_.now() >= until) {
            ready(*raw);
        } else {
            look(*raw, runs, until);
        }
    });
}

void Engine::run(Task& task) {
    const auto it = entries_.find(&task);
    if (it == entries_.end()) {
        return;
    }
    Entry& entry = *it->second;
    entry.queued = false;
    entry.runs++;
    const bool more = task.run(world_.now());
    if (task.ended()) {
        const auto ended = std::move(it->second);
        entries_.erase(it);
        if (ended->connection != nullptr) {
            on_end_(ended->connection->end());
        }
        return;
    }
    entry.deadline.set(task.deadline());
    if (more) {
        ready(task);
    }
}

}  // namespace smc::sim
