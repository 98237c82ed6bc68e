// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Streams beside small messages in one engine: who waits for whom.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <future>
#include <memory>
#include <vector>

#include "datapath/engine.h"
#include "os/unique_fd.h"

using namespace smc;

namespace {

// A task that reports once that it had little to do, and checks that short_quantum() tells other tasks so for a while.
class Little final : public Task {
 public:
    bool start(Poller& poller) override {
        poller_ = &poller;
        return true;
    }
    void on_event(int, std::uint32_t) override {}
    bool run(TimePoint now) override {
        const bool before = poller_->short_quantum(now);
        poller_->was_interactive(*this);
        told.set_value(!before && poller_->short_quantum(now) &&
                       !poller_->short_quantum(now + std::chrono::seconds(1)));
        done_ = true;
        return false;
    }
    void abort(Reason) override { done_ = true; }
    [[nodiscard]] bool ended() const override { return done_; }

    std::promise<bool> told;

 private:
    Poller* poller_ = nullptr;
    bool done_ = false;
};

// Tasks that stream, and one with short messages, which was added last. Whenever that one runs, all get an event.
struct Crowd {
    static constexpr std::size_t kStreams = 2;
    static constexpr int kRounds = 1000;
    int rounds = 0;
    std::size_t ran = 0;  // runs of streams since the short one ran
    std::promise<bool> was_first;
    std::vector<UniqueFd> doorbells;

    void ring() {
        ran = 0;
        for (const auto& doorbell : doorbells) {
            const std::uint64_t one = 1;
            [[maybe_unused]] const ssize_t written = ::write(doorbell.get(), &one, sizeof one);
        }
    }
};

class OfCrowd final : public Task {
 public:
    OfCrowd(Crowd& crowd, bool streams) : crowd_(crowd), streams_(streams) {
        crowd_.doorbells.emplace_back(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        doorbell_ = crowd_.doorbells.back().get();
        source_ = {this, 0};
    }
    bool start(Poller& poller) override {
        poller_ = &poller;
        return poller.watch(doorbell_, EPOLLIN, source_);
    }
    void on_event(int, std::uint32_t) override {}
    bool run(TimePoint) override {
        if (streams_) {
            crowd_.ran++;
            poller_->was_bulk(*this);
            return false;
        }
        poller_->was_interactive(*this);
        const bool first = crowd_.rounds > 0 && crowd_.ran < Crowd::kStreams;
        if (done_ = first || crowd_.rounds++ == Crowd::kRounds; done_) {
            crowd_.was_first.set_value(first);
        } else {
            crowd_.ring();
        }
        return false;
    }
    void abort(Reason) override { done_ = true; }
    [[nodiscard]] bool ended() const override { return done_; }

 private:
    Crowd& crowd_;
    bool streams_, done_ = false;
    int doorbell_;
    Poller::Source source_{};
    Poller* poller_ = nullptr;
};

// A small message in each round, beside a stream that always has more to do, and a task that is kicked in each round.
// Ends when streams have rested for a round and have run all the same, or when there were too many rounds.
class SmallMessages final : public Task {
 public:
    static constexpr int kMost = 1'000'000, kStreamRuns = 20, kKickedWithin = 3;

    struct Other final : Task {
        Other(bool is_stream) : streams(is_stream) {}
        bool start(Poller& poller) override {
            poller_ = &poller;
            return true;
        }
        void on_event(int, std::uint32_t) override {}
        bool run(TimePoint) override {
            runs++;
            if (streams) {
                poller_->was_bulk(*this);
            }
            return streams && !done;
        }
        void abort(Reason) override { done = true; }
        [[nodiscard]] bool ended() const override { return done; }
        bool streams, done = false;
        int runs = 0;

     private:
        Poller* poller_ = nullptr;
    };

    bool start(Poller& poller) override {
        poller_ = &poller;
        return poller.watch(bell_.get(), EPOLLIN, source_);
    }
    void on_event(int, std::uint32_t) override {}
    bool run(TimePoint) override {
        poller_->was_interactive(*this);
        const int others_ran = stream->runs + kicked->runs;
        rested += rounds_ > 1 && others_ran == others_ran_ ? 1 : 0;  // the first run is in their place
        others_ran_ = others_ran;
        if (kicked->runs != kicked_ran_) {
            kicked_ran_ = kicked->runs;
            kicked_at_ = rounds_;
            engine->kick(kicked);
        } else if (rounds_ > kicked_at_ + kKickedWithin) {
            kicked_late = true;
        }
        if ((rested > 0 && stream->runs >= kStreamRuns) || ++rounds_ == kMost) {
            stream->done = kicked->done = done_ = true;
            over.set_value();
            return false;
        }
        const std::uint64_t one = 1;
        [[maybe_unused]] const ssize_t written = ::write(bell_.get(), &one, sizeof one);
        return false;
    }
    void abort(Reason) override { done_ = true; }
    [[nodiscard]] bool ended() const override { return done_; }

    Engine* engine = nullptr;
    std::shared_ptr<Other> stream = std::make_shared<Other>(true), kicked = std::make_shared<Other>(false);
    int rested = 0;  // rounds in which neither ran
    bool kicked_late = false;
    std::promise<void> over;

 private:
    UniqueFd bell_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    Poller::Source source_{this, 0};
    Poller* poller_ = nullptr;
    int rounds_ = 0, others_ran_ = 0, kicked_ran_ = 0, kicked_at_ = 0;
    bool done_ = false;
};

}  // namespace

TEST_CASE("engine__who_has_much_keeps_it_short_for_a_moment_behind_one_who_had_little") {
    auto engine = *Engine::start([](const ConnectionEnd&) {});
    const auto task = std::make_shared<Little>();
    engine->add_task(task);
    CHECK(task->told.get_future().get());
}

TEST_CASE("engine__streams_with_news_wait_for_their_turn_behind_one_who_had_little") {
    Crowd crowd;
    auto engine = *Engine::start([](const ConnectionEnd&) {});
    for (std::size_t i = 0; i <= Crowd::kStreams; i++) {
        engine->add_task(std::make_shared<OfCrowd>(crowd, i < Crowd::kStreams));
    }
    CHECK(crowd.was_first.get_future().get());
}

TEST_CASE("engine__streams_rest_behind_small_messages_and_nothing_else_does") {
    auto engine = *Engine::start([](const ConnectionEnd&) {});
    const auto rounds = std::make_shared<SmallMessages>();
    rounds->engine = engine.get();
    engine->add_task(rounds->stream);
    engine->add_task(rounds->kicked);
    engine->add_task(rounds);
    rounds->over.get_future().get();
    REQUIRE(engine->stop());
    CHECK(rounds->rested > 0);
    CHECK(rounds->stream->runs >= SmallMessages::kStreamRuns);
    CHECK_FALSE(rounds->kicked_late);
}
