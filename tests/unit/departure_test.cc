// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The departure of an agent, tested without an agent: when it gives up its place, takes it back, and ends.
#include "agent/upgrade/departure.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <string>
#include <utility>

using namespace smc;
using smc::upgrade::Departure;
using smc::upgrade::Successor;

namespace {

struct Agent {
    asio::io_context io;
    std::size_t connections = 1;
    bool settled = false, released = false, over = false, another_serves = false, hangs = false;
    int asked_who_serves = 0;  // calls of Parts::somebody_serves
    Departure departure;

    explicit Agent(
        unsigned stop_s = 60, unsigned upgrade_s = 60,
        std::function<Result<Successor>()> start = [] { return Successor::start(); })
        : departure({io, std::chrono::seconds(stop_s), std::chrono::seconds(upgrade_s), std::chrono::seconds(3),
                     std::chrono::milliseconds(300), [this] { return connections; }, [this] { return settled; },
                     [this] { return asked_who_serves++, another_serves; }, [] {}, [this] { released = true; },
                     [this] { over = true; }, [this] { return hangs; }, std::chrono::milliseconds(300),
                     std::move(start)}) {}
    // Runs the timers until truth() holds; false: it does not within 10 seconds.
    template <class Truth>
    bool until(Truth truth) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (!truth() && std::chrono::steady_clock::now() < end) {
            io.restart();
            io.run_one_until(end);
        }
        return truth();
    }
    [[nodiscard]] std::string obstacle() const { return departure.obstacle(); }
};

// A process that asks an agent to leave.
class Asker {
 public:
    Asker() : pid_(::fork()) {
        if (pid_ == 0) {
            ::pause();
            ::_exit(0);
        }
    }
    ~Asker() { die(); }
    Asker(const Asker&) = delete;
    Asker& operator=(const Asker&) = delete;
    [[nodiscard]] pid_t pid() const { return pid_; }
    void die() {
        if (pid_ > 0) {
            ::kill(pid_, SIGKILL);
            ::waitpid(std::exchange(pid_, 0), nullptr, 0);
        }
    }

 private:
    pid_t pid_;
};

// Successors that are shell scripts; the last that was started is killed in the end.
class Shell {
 public:
    Shell() = default;
    ~Shell() {
        if (last_ != 0) {
            ::kill(last_, SIGKILL);
            ::waitpid(last_, nullptr, 0);
        }
    }
    Shell(const Shell&) = delete;
    Shell& operator=(const Shell&) = delete;
    Result<Successor> start(const std::string& script) {
        auto started = Successor::start("/bin/sh", {"sh", "-c", script});
        last_ = started ? started->pid() : 0;
        return started;
    }

 private:
    pid_t last_ = 0;
};

pid_t dead_process() {
    const pid_t child = ::fork();
    if (child == 0) {
        ::_exit(0);
    }
    ::waitpid(child, nullptr, 0);
    return child;
}

}  // namespace

TEST_CASE("departure__gives_up_its_place_when_nobody_is_half_way") {
    Agent agent;
    REQUIRE(agent.departure.leave(::getpid()));
    CHECK(agent.obstacle() == "another agent takes over");
    CHECK_FALSE(agent.departure.leave(::getpid()));
    CHECK_FALSE(agent.released);
    agent.settled = true;
    CHECK(agent.until([&] { return agent.released; }));
    // The supervisor that started the other agent ends this one, so it does not end by itself.
    agent.connections = 0;
    agent.io.restart();
    agent.io.run_for(std::chrono::milliseconds(350));
    CHECK_FALSE(agent.over);
    agent.departure.signalled();
    CHECK(agent.over);
}

TEST_CASE("departure__does_not_wait_for_ever_for_those_half_way") {
    Agent agent;
    REQUIRE(agent.departure.leave(::getpid()));
    CHECK(agent.until([&] { return agent.released; }));
}

TEST_CASE("departure__goes_on_if_who_asked_has_gone") {
    Agent agent;
    REQUIRE(agent.departure.leave(dead_process()));
    CHECK(agent.until([&] { return agent.obstacle().empty(); }));
    CHECK_FALSE(agent.released);
    CHECK(agent.departure.leave(::getpid()));

    Agent told;
    REQUIRE(told.departure.leave(dead_process()));
    told.departure.signalled();
    CHECK(told.until([&] { return told.obstacle() == "it is being stopped"; }));
    told.connections = 0;
    CHECK(told.until([&] { return told.over; }));
}

TEST_CASE("departure__a_stop_waits_as_long_as_it_may") {
    Agent agent;
    agent.departure.signalled();
    CHECK_FALSE(agent.over);
    CHECK(agent.obstacle() == "it is being stopped");
    agent.departure.signalled();
    CHECK(agent.over);

    Agent impatient(0);
    impatient.departure.signalled();
    CHECK(impatient.over);
    CHECK(impatient.obstacle() == "it is being stopped");

    Agent patient(1);
    patient.departure.signalled();
    CHECK(patient.until([&] { return patient.over; }));
}

TEST_CASE("departure__a_stop_does_not_wait_for_a_data_path_that_hangs") {
    Agent agent;
    agent.hangs = true;
    agent.departure.signalled();
    CHECK(agent.over);

    Agent later;
    later.departure.signalled();
    CHECK_FALSE(later.over);
    later.hangs = true;
    CHECK(later.until([&] { return later.over; }));
}

TEST_CASE("departure__a_stop_that_waits_waits_no_longer_because_another_agent_takes_over") {
    Agent agent(1, 60);
    agent.departure.signalled();
    REQUIRE(agent.departure.leave(::getpid()));
    agent.settled = true;
    CHECK(agent.until([&] { return agent.over; }));
    CHECK(agent.released);
}

// If the agent that took over dies and no other serves, this one ends when idle: a supervisor then starts another.
TEST_CASE("departure__who_is_left_alone_ends_and_who_is_needed_does_not") {
    Agent agent;
    agent.settled = agent.another_serves = true;
    Asker asker;
    REQUIRE(agent.departure.leave(asker.pid()));
    CHECK(agent.until([&] { return agent.released; }));
    asker.die();
    const auto stays = [&] {
        agent.io.restart();
        agent.io.run_for(std::chrono::milliseconds(700));
        return !agent.over;
    };
    agent.connections = 0;
    CHECK(stays());  // another agent serves
    agent.another_serves = false;
    agent.connections = 1;
    CHECK(stays());  // it has a connection
    agent.connections = 0;
    CHECK(agent.until([&] { return agent.over; }));
}

TEST_CASE("departure__connections_stay_beyond_the_time_to_drain_if_the_next_agent_has_died") {
    Agent agent(60, 1);
    agent.settled = agent.another_serves = true;
    Asker asker;
    REQUIRE(agent.departure.leave(asker.pid()));
    CHECK(agent.until([&] { return agent.released; }));
    agent.another_serves = false;
    asker.die();
    agent.io.restart();
    agent.io.run_for(std::chrono::milliseconds(1700));
    CHECK_FALSE(agent.over);
    agent.another_serves = true;
    CHECK(agent.until([&] { return agent.over; }));
}

TEST_CASE("departure__what_it_has_left_is_reset_when_its_time_to_drain_is_over") {
    Agent agent(60, 0);
    agent.settled = true;
    REQUIRE(agent.departure.leave(::getpid()));
    CHECK(agent.until([&] { return agent.over; }));
    CHECK(agent.released);
}

TEST_CASE("departure__a_successor_that_hangs_is_killed_and_the_next_one_may_try") {
    Shell shell;
    Agent agent(60, 60, [&] { return shell.start("exec sleep 600"); });
    REQUIRE(agent.departure.upgrade());
    const auto refused = agent.departure.upgrade();
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == EALREADY);
    bool again = false;
    CHECK(agent.until([&] { return again = again || agent.departure.upgrade(); }));
    CHECK(agent.obstacle().empty());
}

TEST_CASE("departure__a_stop_ends_a_successor_that_has_not_asked_for_the_place") {
    Shell shell;
    Agent agent(60, 60, [&] { return shell.start("exec sleep 60"); });
    const auto successor = agent.departure.upgrade();
    REQUIRE(successor);
    agent.departure.signalled();
    CHECK_FALSE(agent.departure.leave(*successor));
    CHECK(agent.until([&] { return ::kill(*successor, 0) != 0; }));
    CHECK_FALSE(agent.over);  // it has a connection
}

TEST_CASE("departure__a_successor_that_hangs_in_its_place_is_replaced") {
    Shell shell;
    int started = 0;
    Agent agent(60, 60, [&] {  // the second one reports that it serves, on the descriptor that its arguments name
        return shell.start(++started == 1 ? "exec sleep 600" : "echo > /proc/self/fd/$2; exec sleep 600");
    });
    agent.settled = true;
    agent.connections = 0;
    const auto first = agent.departure.upgrade();
    REQUIRE(first);
    REQUIRE(agent.departure.leave(*first));
    CHECK(agent.until([&] { return agent.released; }));
    CHECK_FALSE(agent.over);  // U2
    CHECK(agent.until([&] { return agent.over; }));
    CHECK(started >= 2);  // more, if the machine is busy
}

TEST_CASE("departure__a_successor_is_not_killed_if_a_third_agent_took_over_from_it_before_it_served") {
    Shell shell;
    int started = 0;
    Agent agent(60, 60, [&] {
        started++;
        return shell.start("trap 'exit 0' TERM; while kill -0 $PPID; do sleep 0.1; done");
    });
    agent.settled = agent.another_serves = true;
    agent.connections = 0;
    const auto successor = agent.departure.upgrade();
    REQUIRE(successor);
    REQUIRE(agent.departure.leave(*successor));
    CHECK(agent.until([&] { return agent.asked_who_serves != 0; }));  // the successor is late
    agent.another_serves = false;                                     // another one is started if this one is killed
    CHECK(::kill(*successor, SIGTERM) == 0);
    CHECK(agent.until([&] { return agent.over; }));
    CHECK(started == 1);
}
