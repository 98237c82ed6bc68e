// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/engines.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "os/unique_fd.h"

using namespace smc;

namespace {

// A task whose run() blocks until it is released.
class Stuck final : public Task {
 public:
    bool start(Poller&) override { return true; }
    void on_event(int, std::uint32_t) override {}
    bool run(TimePoint) override {
        begun.set_value();
        go_on.get_future().wait();
        done_ = true;
        return false;
    }
    void abort(Reason) override { done_ = true; }
    [[nodiscard]] bool ended() const override { return done_; }

    std::promise<void> begun, go_on;

 private:
    bool done_ = false;
};

// A task that always has more to do.
class Busy final : public Task {
 public:
    bool start(Poller&) override { return true; }
    void on_event(int, std::uint32_t) override {}
    bool run(TimePoint) override { return true; }
    void abort(Reason) override { done_ = true; }
    [[nodiscard]] bool ended() const override { return done_; }

 private:
    bool done_ = false;
};

// A task that asks to be busy-polled for a while after its first run(), and reports its second one.
class Looker final : public Task {
 public:
    explicit Looker(std::chrono::seconds time) : time_(time) {}
    bool start(Poller& poller) override {
        poller_ = &poller;
        return true;
    }
    void on_event(int, std::uint32_t) override {}
    bool run(TimePoint now) override {
        if (runs_++ == 0) {
            poller_->spin(*this, now + time_, Poller::Expects::kEvents);
        } else {
            again.set_value();
            done_ = true;
        }
        return false;
    }
    bool look() override {
        looked_at = true;
        return news;
    }
    void abort(Reason) override { done_ = true; }
    [[nodiscard]] bool ended() const override { return done_; }

    std::promise<void> again;
    std::atomic<bool> news{false}, looked_at{false};

 private:
    std::chrono::seconds time_;
    Poller* poller_ = nullptr;
    int runs_ = 0;
    bool done_ = false;
};

// A task that records that it runs because another task has called it.
class Called final : public Task {
 public:
    Called(int name, std::vector<int>& log) : name_(name), log_(log) {}
    bool start(Poller&) override { return true; }
    void on_event(int, std::uint32_t) override {}
    bool run(TimePoint) override {
        if (is_called) {
            log_.push_back(name_);
            done_ = true;
        }
        return false;
    }
    void abort(Reason) override { done_ = true; }
    [[nodiscard]] bool ended() const override { return done_; }

    bool is_called = false;

 private:
    int name_;
    std::vector<int>& log_;
    bool done_ = false;
};

// A task that runs for each ring of its doorbell and records it; it may then call another task.
class Rung final : public Task {
 public:
    Rung(int name, std::vector<int>& log, Called* calls = nullptr) : name_(name), log_(log), calls_(calls) {}
    bool start(Poller& poller) override {
        poller_ = &poller;
        return poller.watch(bell.get(), EPOLLIN, source_);
    }
    void on_event(int, std::uint32_t) override {
        std::uint64_t count = 0;
        rang_ = ::read(bell.get(), &count, sizeof count) == sizeof count;
    }
    bool run(TimePoint) override {
        if (std::exchange(rang_, false)) {
            log_.push_back(name_);
            if (calls_ != nullptr) {
                calls_->is_called = true;
                poller_->ready(*calls_);
            }
            done_ = true;
        }
        return false;
    }
    void abort(Reason) override { done_ = true; }
    [[nodiscard]] bool ended() const override { return done_; }
    void ring() const {
        const std::uint64_t one = 1;
        REQUIRE(::write(bell.get(), &one, sizeof one) == sizeof one);
    }

    UniqueFd bell{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};

 private:
    int name_;
    std::vector<int>& log_;
    Called* calls_;
    Poller* poller_ = nullptr;
    Poller::Source source_{this, 0};
    bool rang_ = false, done_ = false;
};

// A task whose peer says when it has published something. `spins`: it is busy-polled; otherwise its doorbell rings.
class Told final : public Task {
 public:
    Told(int name, bool spins, std::vector<int>& log) : name_(name), spins_(spins), log_(log) {}
    bool start(Poller& poller) override {
        poller_ = &poller;
        return poller.watch(bell_.get(), EPOLLIN, source_);
    }
    void on_event(int, std::uint32_t) override { told_ = true; }
    bool run(TimePoint now) override {
        if (news_since() != kNever) {
            log_.push_back(name_);
            done_ = true;
        } else if (spins_) {
            poller_->spin(*this, now + std::chrono::hours(1), Poller::Expects::kMemory);
        }
        return false;
    }
    bool look() override {
        if (before_look) {
            std::exchange(before_look, nullptr)();
        }
        return told_ = published_.load() != kNever;
    }
    [[nodiscard]] TimePoint news_since() const override { return told_ ? published_.load() : kNever; }
    [[nodiscard]] TimePoint untold_since() const override { return told_ ? kNever : published_.load(); }
    void abort(Reason) override { done_ = true; }
    [[nodiscard]] bool ended() const override { return done_; }
    void publish(TimePoint at) {
        published_ = at;
        const std::uint64_t one = 1;
        REQUIRE((spins_ || ::write(bell_.get(), &one, sizeof one) == sizeof one));
    }
    std::function<void()> before_look;  // called once

 private:
    int name_;
    bool spins_, told_ = false;
    std::vector<int>& log_;
    std::atomic<TimePoint> published_{kNever};
    UniqueFd bell_{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    Poller* poller_ = nullptr;
    Poller::Source source_{this, 0};
    bool done_ = false;
};

void await_an_iteration(Engine& engine) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!engine.has_iterated()) {
        REQUIRE(std::chrono::steady_clock::now() < end);
        std::this_thread::yield();
    }
}

}  // namespace

TEST_CASE("engine__one_that_stands_still_is_noticed_and_stopping_does_not_wait_for_it") {
    auto engine = *Engine::start([](const ConnectionEnd&) {});
    for (int i = 0; i < 3; i++) {
        await_an_iteration(*engine);  // also while it sleeps
    }
    const auto stuck = std::make_shared<Stuck>();
    engine->add_task(stuck);
    stuck->begun.get_future().wait();
    (void)engine->has_iterated();  // requests an iteration
    CHECK_FALSE(engine->has_iterated());
    CHECK_FALSE(engine->stop(std::chrono::milliseconds(20)));
    stuck->go_on.set_value();
    CHECK(engine->stop());
}

TEST_CASE("engine__one_that_is_busy_iterates") {
    auto engine = *Engine::start([](const ConnectionEnd&) {});
    engine->add_task(std::make_shared<Busy>());
    for (int i = 0; i < 100; i++) {
        await_an_iteration(*engine);
    }
}

namespace {

// A busy-poll that makes a descriptor readable as soon as a task waits for it.
class Bringer final : public BusyPoll {
 public:
    void look() override {
        if (wanted.exchange(false)) {
            const std::uint64_t one = 1;
            REQUIRE(::write(fd.get(), &one, sizeof one) == sizeof one);
        }
    }
    std::atomic<bool> wanted{false};
    UniqueFd fd{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

class Waiter final : public Task {
 public:
    explicit Waiter(Bringer& bringer) : bringer_(bringer) {}
    bool start(Poller& poller) override { return poller.watch(bringer_.fd.get(), EPOLLIN, source_); }
    void on_event(int, std::uint32_t) override { news_ = true; }
    bool run(TimePoint) override {
        if (!news_) {
            bringer_.wanted = true;  // the next round finds it
        } else if (!std::exchange(done_, true)) {
            heard.set_value();
        }
        return false;
    }
    void abort(Reason) override { done_ = true; }
    [[nodiscard]] bool ended() const override { return done_; }
    std::promise<void> heard;

 private:
    Bringer& bringer_;
    Poller::Source source_{this, 0};
    bool news_ = false, done_ = false;
};

}  // namespace

TEST_CASE("engine__runs_tasks_in_the_order_in_which_their_news_came") {
    std::vector<int> log;
    auto engine = *Engine::start([](const ConnectionEnd&) {});
    std::vector<std::shared_ptr<Rung>> tasks;
    for (int name = 0; name < 4; name++) {
        engine->add_task(tasks.emplace_back(std::make_shared<Rung>(name, log)));
    }
    const auto stuck = std::make_shared<Stuck>();
    engine->add_task(stuck);
    stuck->begun.get_future().wait();
    for (const int name : {2, 0, 3, 1}) {  // before the engine polls, so that it finds all in one turn
        tasks[static_cast<std::size_t>(name)]->ring();
    }
    stuck->go_on.set_value();
    while (engine->tasks() != 0) {
        std::this_thread::yield();
    }
    REQUIRE(engine->stop());
    CHECK(log == std::vector<int>{2, 0, 3, 1});
}

// Like a link, a task has received something for another task.
TEST_CASE("engine__what_a_task_brings_for_another_is_served_before_what_came_later") {
    std::vector<int> log;
    const auto brought = std::make_shared<Called>(1, log);
    const auto bringer = std::make_shared<Rung>(0, log, brought.get());
    const auto later = std::make_shared<Rung>(2, log);
    auto engine = *Engine::start([](const ConnectionEnd&) {});
    engine->add_task(brought);
    engine->add_task(bringer);
    engine->add_task(later);
    const auto stuck = std::make_shared<Stuck>();
    engine->add_task(stuck);
    stuck->begun.get_future().wait();
    bringer->ring();
    later->ring();
    stuck->go_on.set_value();
    while (engine->tasks() != 0) {
        std::this_thread::yield();
    }
    REQUIRE(engine->stop());
    CHECK(log == std::vector<int>{0, 1, 2});
}

TEST_CASE("engine__looks_out_each_time_round") {
    const auto bringer = std::make_shared<Bringer>();
    auto engine = *Engine::start([](const ConnectionEnd&) {}, {}, {bringer});
    const auto waiter = std::make_shared<Waiter>(*bringer);
    engine->add_task(waiter);
    CHECK(waiter->heard.get_future().wait_for(std::chrono::seconds(10)) == std::future_status::ready);
}

TEST_CASE("engine__who_spins_hears_of_news_without_an_event") {
    auto engine = *Engine::start([](const ConnectionEnd&) {});
    const auto looker = std::make_shared<Looker>(std::chrono::seconds(1000));
    engine->add_task(looker);
    while (!looker->looked_at) {
        std::this_thread::yield();
    }
    looker->news = true;
    CHECK(looker->again.get_future().wait_for(std::chrono::seconds(10)) == std::future_status::ready);
}

TEST_CASE("engine__news_is_served_in_the_order_in_which_it_was_published_with_or_without_an_event") {
    std::vector<int> log;
    auto engine = *Engine::start([](const ConnectionEnd&) {});
    std::vector<std::shared_ptr<Told>> tasks;
    for (int name = 0; name < 4; name++) {
        engine->add_task(tasks.emplace_back(std::make_shared<Told>(name, name % 2 == 1, log)));
    }
    const auto stuck = std::make_shared<Stuck>();
    engine->add_task(stuck);
    stuck->begun.get_future().wait();
    for (const auto& [name, second] : {std::pair(0, 4), {2, 2}, {1, 3}, {3, 1}}) {
        tasks[static_cast<std::size_t>(name)]->publish(TimePoint{std::chrono::seconds(second)});
    }
    stuck->go_on.set_value();
    while (engine->tasks() != 0) {
        std::this_thread::yield();
    }
    REQUIRE(engine->stop());
    CHECK(log == std::vector<int>{3, 2, 1, 0});
}

// The peer publishes after the look at the one task, and before the look at the other, or the event for it.
TEST_CASE("engine__news_that_a_look_came_too_early_to_see_is_served_before_later_news") {
    const bool second_spins = GENERATE(true, false);
    std::vector<int> log;
    const auto first = std::make_shared<Told>(1, true, log), second = std::make_shared<Told>(2, second_spins, log);
    const auto third = std::make_shared<Told>(3, true, log);  // its look() comes after that at the first one
    const auto stuck = std::make_shared<Stuck>();
    auto engine = *Engine::start([](const ConnectionEnd&) {});
    engine->add_task(first);
    engine->add_task(third);
    engine->add_task(second);
    engine->add_task(stuck);
    stuck->begun.get_future().wait();  // the others have run
    third->before_look = [&] {
        first->publish(TimePoint{std::chrono::seconds(1)});
        second->publish(TimePoint{std::chrono::seconds(2)});
    };
    stuck->go_on.set_value();
    while (engine->tasks() != 1) {
        std::this_thread::yield();
    }
    REQUIRE(engine->stop());
    CHECK(log == std::vector<int>{1, 2});
}

TEST_CASE("engine__who_spins_in_vain_is_told") {
    auto engine = *Engine::start([](const ConnectionEnd&) {});
    const auto looker = std::make_shared<Looker>(std::chrono::seconds(0));
    engine->add_task(looker);
    CHECK(looker->again.get_future().wait_for(std::chrono::seconds(10)) == std::future_status::ready);
}

TEST_CASE("engine__who_spins_does_not_keep_it_from_ending") {
    auto engine = *Engine::start([](const ConnectionEnd&) {});
    const auto looker = std::make_shared<Looker>(std::chrono::seconds(1000));
    engine->add_task(looker);
    while (!looker->looked_at) {
        std::this_thread::yield();
    }
    CHECK(engine->stop());
    CHECK(looker->ended());
}

TEST_CASE("engines__each_gets_as_many_tasks_and_one_that_stands_still_shows") {
    auto engines = *Engines::start(3, [](const ConnectionEnd&) {}, {});
    std::vector<std::shared_ptr<Stuck>> stuck;
    for (int i = 0; i < 3; i++) {
        stuck.push_back(std::make_shared<Stuck>());
        engines->least_busy().add_task(stuck.back());
        stuck.back()->begun.get_future().wait();  // each has its own thread, or it would not begin
    }
    (void)engines->have_iterated();
    CHECK_FALSE(engines->have_iterated());
    for (const auto& task : stuck) {
        task->go_on.set_value();
    }
    while (!engines->have_iterated()) {
        std::this_thread::yield();
    }
    CHECK(engines->stop(std::chrono::seconds(10)));
}
