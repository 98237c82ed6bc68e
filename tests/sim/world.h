// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The world of one simulated run: its time, its random numbers, its mishaps, and its story, which is its log.
// Everything that happens follows from one seed, so a run can be repeated exactly.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "smc/time.h"

namespace smc::sim {

// Mishaps that may happen in a run.
#define SMC_SIM_MISHAPS(X)                                               \
    X(kNoOption, "the server does not speak SMC")                        \
    X(kEcho, "the server echoes the option")                             \
    X(kConnectFails, "the server cannot be reached")                     \
    X(kNoTime, "the budget is short")                                    \
    X(kClcReset, "the TCP connection of CLC is reset")                   \
    X(kClcSlow, "CLC takes its time")                                    \
    X(kClcLost, "nothing more comes over the TCP connection of CLC")     \
    X(kServerRefuses, "the server application refuses")                  \
    X(kServerSilent, "the server application does not answer")           \
    X(kClientGivesUp, "the client application gives up")                 \
    X(kApplicationResets, "an application resets its connection")        \
    X(kApplicationStalls, "an application does not read for seconds")    \
    X(kNoLeg, "the local leg does not come")                             \
    X(kDmbRefused, "no DMB is to be had")                                \
    X(kAttachFails, "the peer's DMB cannot be attached")                 \
    X(kFabricLost, "one side loses the fabric's connection to its peer") \
    X(kLinkRefused, "no queue pair is to be had")                        \
    X(kLinkNotConnected, "the queue pair cannot be connected")           \
    X(kBufferRefused, "no memory is to be had")                          \
    X(kLinkCut, "the path between two queue pairs goes")                 \
    X(kPortDown, "a port goes down, and comes back")                     \
    X(kAckedAndLost, "a device acknowledges what it then loses")         \
    X(kLinkSlow, "a message on a link takes its time")                   \
    X(kEndsLate, "a queue pair goes on when its link has ended")         \
    X(kLateWrites, "what a broken queue pair has sent arrives late")     \
    X(kGroupsEnd, "one side ends all its link groups")                   \
    X(kDeviceGone, "a device is gone at once, and comes back")           \
    X(kFlowsAtOnce, "both sides change their links at the same moment")  \
    X(kNonsense, "a side says what is no LLC, or out of place")          \
    X(kDies, "a side dies without a word, and is there again")

enum class Mishap : std::uint8_t {
#define SMC_SIM_NAME(name, text) name,
    SMC_SIM_MISHAPS(SMC_SIM_NAME)
#undef SMC_SIM_NAME
};
const char* text(Mishap mishap);

using Delay = std::chrono::nanoseconds;

// An invariant does not hold.
struct Violation : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class Descriptor;

class World {
 public:
    // `tell`: print the story while it happens. `spared`: mishaps that do not happen after all, by their number in the
    // story.
    World(std::uint64_t seed, bool tell, std::set<std::uint64_t> spared)
        : random_(seed), spared_(std::move(spared)), tell_(tell) {}
    World(const World&) = delete;
    World& operator=(const World&) = delete;

    // --- time
    [[nodiscard]] TimePoint now() const { return now_; }
    void at(TimePoint when, std::function<void()> what);
    void after(Delay delay, std::function<void()> what) { at(now_ + delay, std::move(what)); }
    // Runs events until none is left, or until `limit`. True: none is left.
    bool run_until(TimePoint limit);
    [[nodiscard]] std::uint64_t events() const { return events_; }
    // Drops the pending events, and the objects that they own.
    void stop();

    // --- chance
    //
    // 0 to n - 1.
    std::uint64_t below(std::uint64_t n) { return random_() % n; }
    std::uint64_t between(std::uint64_t low, std::uint64_t high) { return low + below(high - low + 1); }
    bool chance(unsigned percent) { return below(100) < percent; }
    // From one microsecond to `longest`, each order of magnitude as likely as the others.
    Delay some_time(Delay longest);
    // How long a message takes between two hosts; local(): a call within one host.
    Delay network() {
        return some_time(slow_network_ ? std::chrono::milliseconds(10) : std::chrono::microseconds(300));
    }
    void slow_network() { slow_network_ = true; }
    Delay local() { return Delay(between(200, 20000)); }

    // --- mishaps
    //
    // From now on, strikes() lets this mishap happen `percent` times in a hundred.
    void allow(Mishap mishap, unsigned percent) { allowed_[mishap] = percent; }
    void forbid_all() { allowed_.clear(); }
    // Draws whether this mishap happens here and now.
    bool strikes(Mishap mishap);
    // Whether this mishap happened at least once.
    [[nodiscard]] bool struck(Mishap mishap) const { return struck_.contains(mishap); }
    [[nodiscard]] bool anything_may_strike() const { return !allowed_.empty(); }
    [[nodiscard]] bool anything_struck() const { return !struck_.empty(); }
    // How many mishaps happened, and how many with those that were spared.
    [[nodiscard]] std::uint64_t faults() const { return faults_; }
    [[nodiscard]] std::uint64_t drawn() const { return drawn_; }

    // --- story
    void tell(const std::string& line) const;
    [[noreturn]] void violated(const std::string& what) const;
    void require(bool holds, const std::string& what) const {
        if (!holds) {
            violated(what);
        }
    }

    // nullptr: the descriptor is closed.
    [[nodiscard]] Descriptor* descriptor(int fd) const;

 private:
    friend class Descriptor;
    struct Event {
        TimePoint when;
        std::uint64_t order;
        std::function<void()> what;
        bool operator<(const Event& other) const {
            return when != other.when ? when > other.when : order > other.order;
        }
    };

    TimePoint now_{};
    std::uint64_t events_ = 0, same_time_ = 0;
    std::priority_queue<Event> queue_;
    std::mt19937_64 random_;
    std::map<Mishap, unsigned> allowed_;
    std::set<Mishap> struck_;
    std::map<int, Descriptor*> descriptors_;
    int next_fd_ = 1000;  // no descriptor of the process
    std::set<std::uint64_t> spared_;
    std::uint64_t faults_ = 0, drawn_ = 0;
    bool tell_, slow_network_ = false;
};

// A descriptor that can be watched as by an edge-triggered epoll: changed() is an edge, and so is watch() if the level
// is not 0.
class Descriptor {
 public:
    Descriptor(World& world, std::function<std::uint32_t()> level) : world_(world), level_(std::move(level)) {
        fd_ = world_.next_fd_++;
        world_.descriptors_.emplace(fd_, this);
    }
    ~Descriptor() { world_.descriptors_.erase(fd_); }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;

    [[nodiscard]] int fd() const { return fd_; }
    void watch(std::function<void(std::uint32_t)> watcher);
    void unwatch() { watcher_ = nullptr; }
    // To be called when the level has changed. The watcher is called a moment later, if it still watches.
    void changed();

 private:
    World& world_;
    int fd_;
    std::function<std::uint32_t()> level_;
    std::function<void(std::uint32_t)> watcher_;
    bool news_ = false;
};

// Calls `then` at the time that was set last.
class Timer {
 public:
    Timer(World& world, std::function<void()> then) : world_(world), then_(std::move(then)) {}
    void set(TimePoint when);

 private:
    World& world_;
    std::function<void()> then_;
    TimePoint when_ = kNever;
    // By it, events of this timer find out whether the timer still exists and whether it was set again.
    std::shared_ptr<std::uint64_t> current_ = std::make_shared<std::uint64_t>(0);
};

}  // namespace smc::sim
