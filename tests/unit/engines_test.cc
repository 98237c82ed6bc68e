// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Several engines: how they end, and how tasks move from one to another.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <thread>

#include "datapath/engines.h"
#include "os/unique_fd.h"

using namespace smc;

namespace {

// A task that tells where it was started last and where it ran last, and how many events it has had.
class Traveller final : public Task {
 public:
    explicit Traveller(bool may_leave = true) : may_leave_(may_leave) {}
    bool start(Poller& poller) override {
        poller_ = &poller;
        started_by = &poller;
        return poller.watch(bell_.get(), EPOLLIN, source_);
    }
    bool detach() override {
        if (may_leave_) {
            poller_->unwatch(bell_.get());
        }
        return may_leave_;
    }
    void on_event(int, std::uint32_t) override {
        std::uint64_t count = 0;
        if (::read(bell_.get(), &count, sizeof count) == sizeof count) {
            rings += count;
        }
    }
    bool run(TimePoint) override {
        ran_by = std::this_thread::get_id();
        runs++;
        return false;
    }
    void abort(Reason) override { is_aborted = true; }
    [[nodiscard]] bool ended() const override { return is_aborted; }

    void ring() const {
        const std::uint64_t one = 1;
        REQUIRE(::write(bell_.get(), &one, sizeof one) == sizeof one);
    }
    // Kicks it by way of `engine`, and waits for the run() that follows.
    static void run_by(Engine& engine, const std::shared_ptr<Traveller>& self) {
        const int before = self->runs;
        engine.kick(self);
        while (self->runs == before) {
            std::this_thread::yield();
        }
    }

    std::atomic<Poller*> started_by{nullptr};
    std::atomic<std::thread::id> ran_by;
    std::atomic<int> runs{0};
    std::atomic<std::uint64_t> rings{0};
    std::atomic<bool> is_aborted{false};

 private:
    bool may_leave_;
    UniqueFd bell_{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    Poller* poller_ = nullptr;
    Poller::Source source_{this, 0};
};

// Two engines, and a task in the first one.
struct Two {
    explicit Two(bool may_leave = true) : task(std::make_shared<Traveller>(may_leave)) {
        first().add_task(task);
        Traveller::run_by(first(), task);
        first_thread = task->ran_by;
    }
    [[nodiscard]] Engine& first() const { return engines->at(0); }
    [[nodiscard]] Engine& second() const { return engines->at(1); }
    void move() const {
        const Poller* before = task->started_by;
        first().move(task, second());
        while (task->started_by == before) {
            std::this_thread::yield();
        }
    }

    std::unique_ptr<Engines> engines = *Engines::start(2, [](const ConnectionEnd&) {}, {});
    std::shared_ptr<Traveller> task;
    std::thread::id first_thread;
};

// A task whose run() hangs until it is released.
class Hanging final : public Task {
 public:
    bool start(Poller&) override { return true; }
    void on_event(int, std::uint32_t) override {}
    bool run(TimePoint) override {
        begun.set_value();
        go_on.get_future().wait();
        return false;
    }
    void abort(Reason) override { ended_ = true; }
    [[nodiscard]] bool ended() const override { return ended_; }

    std::promise<void> begun, go_on;

 private:
    bool ended_ = false;
};

}  // namespace

TEST_CASE("engines__one_that_hangs_does_not_keep_the_others_from_ending_in_order") {
    const auto engines = *Engines::start(2, [](const ConnectionEnd&) {}, {});
    const auto hanging = std::make_shared<Hanging>();
    engines->at(0).add_task(hanging);
    hanging->begun.get_future().wait();
    const auto task = std::make_shared<Traveller>();
    engines->at(1).add_task(task);
    CHECK_FALSE(engines->stop(std::chrono::milliseconds(1)));
    while (!task->is_aborted) {
        std::this_thread::yield();
    }
    hanging->go_on.set_value();
    CHECK(engines->stop(std::chrono::seconds(10)));
}

TEST_CASE("engines__a_task_goes_on_in_the_other_engine_and_is_counted_there") {
    const Two t;
    CHECK(t.engines->tasks() == std::vector<std::size_t>{1, 0});
    t.move();
    Traveller::run_by(t.second(), t.task);
    CHECK(t.task->ran_by.load() != t.first_thread);
    CHECK(t.engines->tasks() == std::vector<std::size_t>{0, 1});
    CHECK(t.engines->moved() == 1);
    t.task->ring();
    while (t.task->rings != 1) {
        std::this_thread::yield();
    }
    CHECK(t.task->ran_by.load() != t.first_thread);
}

TEST_CASE("engines__an_event_that_came_before_is_told_after_it") {
    const Two t;
    t.task->ring();
    t.move();
    while (t.task->rings != 1) {
        std::this_thread::yield();
    }
}

TEST_CASE("engines__a_kick_by_way_of_the_former_engine_reaches_the_task") {
    const Two t;
    t.move();
    Traveller::run_by(t.first(), t.task);
    CHECK(t.task->ran_by.load() != t.first_thread);
}

TEST_CASE("engines__a_kick_for_a_task_that_is_in_no_engine_yet_is_ignored") {
    const auto engines = *Engines::start(2, [](const ConnectionEnd&) {}, {});
    const auto early = std::make_shared<Traveller>(), other = std::make_shared<Traveller>();
    engines->at(0).kick(early);
    engines->at(0).add_task(other);
    Traveller::run_by(engines->at(0), other);
    CHECK(early->runs == 0);
}

TEST_CASE("engines__a_task_that_cannot_leave_stays") {
    const Two t(false);
    t.first().move(t.task, t.second());
    Traveller::run_by(t.first(), t.task);  // the kick is behind the request to move, or is served together with it
    Traveller::run_by(t.first(), t.task);
    CHECK(t.task->ran_by.load() == t.first_thread);
    CHECK(t.engines->moved() == 0);
}

TEST_CASE("engines__a_task_stays_if_the_other_engine_has_stopped") {
    const Two t;
    REQUIRE(t.second().stop());
    t.first().move(t.task, t.second());
    Traveller::run_by(t.first(), t.task);
    Traveller::run_by(t.first(), t.task);
    CHECK(t.task->ran_by.load() == t.first_thread);
    CHECK(t.engines->tasks() == std::vector<std::size_t>{1, 0});
}

TEST_CASE("engines__a_task_that_moves_while_its_engine_stops_is_aborted") {
    for (int round = 0; round < 100; round++) {
        const Two t;
        t.first().move(t.task, t.second());
        CHECK(t.engines->stop(std::chrono::seconds(10)));
        CHECK(t.task->ended());
    }
}

TEST_CASE("engines__a_request_of_an_engine_that_has_not_the_task_is_ignored") {
    const Two t;
    t.second().move(t.task, t.first());
    Traveller::run_by(t.first(), t.task);
    Traveller::run_by(t.first(), t.task);
    CHECK(t.task->ran_by.load() == t.first_thread);
    CHECK(t.engines->moved() == 0);
}
