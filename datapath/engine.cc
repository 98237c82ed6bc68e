// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/engine.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <system_error>

#include "os/clock.h"

namespace smc {

namespace {
// A source in an epoll event. The task is named by its order, which no other task ever has: an event may come for a
// descriptor that was closed, as long as a child process has it.
constexpr unsigned kWhichBits = 8;
std::uint64_t key_of(const Poller::Source& source) {
    return source.task == nullptr ? 0 : source.task->order() << kWhichBits | static_cast<unsigned>(source.which);
}
std::uint64_t order_of(std::uint64_t key) {
    return key >> kWhichBits;
}
int which_of(std::uint64_t key) {
    return static_cast<int>(key & ((1U << kWhichBits) - 1));
}
}  // namespace

Result<std::unique_ptr<Engine>> Engine::start(OnEnd on_end, std::chrono::microseconds longest_spin,
                                              BusyPolls busy_polls) {
    std::unique_ptr<Engine> engine(new Engine(std::move(on_end), longest_spin, std::move(busy_polls)));
    engine->epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
    engine->wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!engine->epoll_ || !engine->wake_) {
        return last_error("creating the data path's epoll");
    }
    if (!engine->watch(engine->wake_.get(), EPOLLIN, engine->wake_source_)) {
        return last_error("adding the wake-up eventfd of an engine to epoll");
    }
    try {
        engine->thread_ = std::thread([raw = engine.get()] { raw->loop(); });
    } catch (const std::system_error& failure) {
        return Error{failure.code().value(), "starting a thread of the data path (limit of threads?)"};
    }
    ::pthread_setname_np(engine->thread_.native_handle(), "smc-datapath");
    return engine;
}

Engine::~Engine() {
    stop();
}

void Engine::begin_stop() {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    wake();
}

bool Engine::stop(std::chrono::milliseconds timeout) {
    if (!thread_.joinable()) {
        return true;
    }
    begin_stop();
    {
        std::unique_lock lock(mutex_);
        if (timeout != std::chrono::milliseconds::max() &&
            !stopping_.wait_for(lock, timeout, [this] { return stopped_; })) {
            return false;
        }
    }
    thread_.join();
    return true;
}

std::chrono::nanoseconds Engine::processor_time() {
    clockid_t clock{};
    timespec time{};
    if (::pthread_getcpuclockid(thread_.native_handle(), &clock) != 0 || ::clock_gettime(clock, &time) != 0) {
        return {};
    }
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

bool Engine::has_iterated() {
    const std::uint64_t asked = asked_.load();
    if (answered_.load() != asked) {
        return false;
    }
    asked_.store(asked + 1);
    wake();
    return true;
}

// False: the engine has stopped, and `entry` is as it was.
bool Engine::enlist(Entry& entry) {
    {
        const std::lock_guard lock(mutex_);
        if (closed_) {
            return false;
        }
        count_++;
        entry.task->engine_.store(this);
        new_.push_back(std::move(entry));
    }
    wake();
    return true;
}

void Engine::add(std::shared_ptr<ConnectionTask> connection) {
    const ConnectionTask* raw = connection.get();
    Entry entry{std::move(connection), raw};
    enlist(entry);
}

void Engine::add_task(std::shared_ptr<Task> task) {
    Entry entry{std::move(task), nullptr};
    enlist(entry);
}

void Engine::move(std::shared_ptr<Task> task, Engine& to) {
    {
        const std::lock_guard lock(mutex_);
        moving_.emplace_back(std::move(task), &to);
    }
    wake();
}

void Engine::kick(std::shared_ptr<Task> task) {
    {
        const std::lock_guard lock(mutex_);
        kicked_.push_back(std::move(task));
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
    event.data.u64 = key_of(source);
    return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void Engine::unwatch(int fd) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void Engine::take_new() {
    std::vector<Entry> fresh;
    std::vector<std::shared_ptr<Task>> kicked;
    std::vector<std::pair<std::shared_ptr<Task>, Engine*>> moving;
    {
        const std::lock_guard lock(mutex_);
        fresh.swap(new_);
        kicked.swap(kicked_);
        moving.swap(moving_);
    }
    // Running tasks before new ones. (RmbeTransport::start() ends a connection whose RMBE the new one takes, G5.)
    for (const auto& task : kicked) {
        Engine* const engine = task->engine_.load();
        if (engine == this && tasks_.contains(task->order())) {
            wait_for_turn(*task);
        } else if (engine != this && engine != nullptr) {
            engine->kick(task);
        }
    }
    for (Entry& entry : fresh) {
        Task& task = *entry.task;
        task.order_ = ++last_order_;
        tasks_.emplace(task.order_, std::move(entry));
        if (!task.start(*this)) {
            task.abort(Reason::kLimit);
        }
        wait_for_turn(task);
    }
    for (const auto& [task, to] : moving) {
        Engine* const engine = task->engine_.load();
        if (engine == this && to != this && tasks_.contains(task->order())) {
            give_away(*task, *to);
        } else if (engine != this && engine != nullptr) {
            engine->move(task, *to);
        }
    }
}

// Called between two iterations, when no list but these refers to the task. Events that come from now on are reported
// by the other engine's epoll: as each descriptor is added there, epoll looks at its state.
void Engine::give_away(Task& task, Engine& to) {
    if (task.ended() || !task.detach()) {
        return;
    }
    std::erase(ready_, &task);
    std::erase(spinning_, &task);
    deadlines_.set(task.order(), kNever);
    Entry entry = std::move(tasks_.extract(task.order()).mapped());
    task.order_ = task.pass_ = 0;  // so that the other engine does not take it for one of its own before it starts it
    task.waits_ = task.is_bulk_ = false;
    task.spins_until_ = kNever;
    count_--;
    moved_.fetch_add(1, std::memory_order_relaxed);
    if (!to.enlist(entry)) {  // it has stopped
        moved_.fetch_sub(1, std::memory_order_relaxed);
        enlist(entry);
    }
}

// Tasks are destroyed only between iterations: until then an event, or a task that calls ready(), may refer to them.
void Engine::forget_ended() {
    std::ranges::sort(ended_, {}, &Task::order);
    ended_.erase(std::unique(ended_.begin(), ended_.end()), ended_.end());
    for (Task* task : ended_) {
        std::erase(ready_, task);
        std::erase(spinning_, task);
        deadlines_.set(task->order(), kNever);
        // The task is destroyed before on_end_() is called, which may give its resources to another connection.
        Entry gone = std::move(tasks_.extract(task->order()).mapped());
        const bool tells = gone.connection != nullptr;
        const ConnectionEnd end = tells ? gone.connection->end() : ConnectionEnd{};
        gone.task.reset();
        count_--;
        if (tells) {
            on_end_(end);
        }
    }
    ended_.clear();
}

int Engine::wait_ms(TimePoint now) const {
    if (!ready_.empty() || !spinning_.empty()) {
        return 0;
    }
    const TimePoint next = deadlines_.next();
    if (next == kNever) {
        return -1;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - now).count();
    return static_cast<int>(std::clamp<decltype(left)>(left, 0, 60000));
}

void Engine::loop() {
    std::array<epoll_event, 128> events{};
    TimePoint began{};
    bool had_work = false;
    for (;;) {
        for (const auto& busy_poll : busy_polls_) {
            busy_poll->look();
        }
        auto now = os::now();
        if (std::exchange(had_work, false)) {
            busy_.fetch_add((now - began).count(), std::memory_order_relaxed);
        }
        look(now);
        const int n = ::epoll_wait(epoll_.get(), events.data(), events.size(), wait_ms(now));
        began = now = os::now();
        answered_.store(asked_.load());

        touched_.clear();
        for (int i = 0; i < n; i++) {
            const epoll_event& event = events[static_cast<std::size_t>(i)];
            if (const auto it = tasks_.find(order_of(event.data.u64)); it != tasks_.end()) {
                Task& task = *it->second.task;
                task.on_event(which_of(event.data.u64), event.events);
                touch(task, now);
            }
        }
        deadlines_.take_expired(now, [&](std::uint64_t order) { touch(*tasks_.at(order).task, now); });
        touch_spinning(now);
        put_in_order();
        if (!spinning_.empty() && touched_.empty() && ready_.empty()) {
            yield(now);
        }
        had_work = !touched_.empty() || !ready_.empty();
        run_all(touched_, now);
        const bool rest = defer_streams(now);
        run_next(now, rest);
        run_called(now);
        forget_ended();
        take_new();
        const std::lock_guard lock(mutex_);
        closed_ = stop_ && new_.empty();
        if (closed_) {
            break;
        }
    }
    end_all();
}

// Connections first: their last messages leave by the links that the other tasks drive.
void Engine::end_all() {
    for (const bool connections : {true, false}) {
        for (auto& [order, entry] : tasks_) {
            if ((entry.connection != nullptr) == connections) {
                entry.task->abort(Reason::kStopped);
                if (connections) {
                    on_end_(entry.connection->end());
                }
            }
        }
    }
    tasks_.clear();
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    stopping_.notify_all();
}

}  // namespace smc
