// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A simulated program with one TCP connection: it writes a stream whose bytes follow from their position, reads and
// checks the peer's stream, and remembers how the connection ended.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "stream.h"

namespace smc::sim {

// Byte `at` of a stream: its value and its urgent mark follow from the number of the stream.
Byte byte_of(std::uint64_t stream, std::uint64_t at, bool with_urgent);

class Application {
 public:
    struct Plan {
        std::string name;
        std::uint64_t out = 0, in = 0;  // numbers of the streams
        std::uint64_t bytes = 0;        // to write
        bool urgent = false;            // some bytes are urgent
        TimePoint resets_at = kNever;
        bool waits_for_end = false;  // writes only when it has read everything
        Delay reads_late{};          // time before the first read
        bool is_slow = false;        // reads a little now and then, so that a ring is mostly full
    };
    enum class End : std::uint8_t { kNone, kOrderly, kError };

    Application(World& world, Plan plan);
    Application(const Application&) = delete;
    Application& operator=(const Application&) = delete;

    // connect() or accept() succeeded.
    void connected(std::shared_ptr<Socket> socket);
    // connect() failed.
    void refused(const std::string& why);

    [[nodiscard]] const Plan& plan() const { return plan_; }
    [[nodiscard]] bool was_connected() const { return socket_ != nullptr || over_; }
    // It is done with its connection, or never gets one.
    [[nodiscard]] bool over() const { return over_; }
    [[nodiscard]] End end() const { return end_; }
    [[nodiscard]] std::uint64_t written() const { return written_; }
    [[nodiscard]] std::uint64_t read() const { return read_; }
    [[nodiscard]] std::string state() const;
    // Whether this application has read no more than `writer` wrote and, if it ended in order, all of it.
    [[nodiscard]] bool has_read_from(const Application& writer) const;

 private:
    void act();
    void read_some();
    void write_some();
    void finish(End end, const std::string& how);
    void again(Delay longest);

    World& world_;
    Plan plan_;
    std::shared_ptr<Socket> socket_;
    std::uint64_t written_ = 0, read_ = 0;
    bool saw_end_ = false, ended_writing_ = false, over_ = false;
    TimePoint asleep_until_{}, reads_from_{};
    End end_ = End::kNone;
    Timer timer_;
};

// A server that serves all accepted connections alike. An attempt that fails may leave an accepted connection behind.
class Listener {
 public:
    Listener(World& world, Application::Plan plan) : world_(world), plan_(std::move(plan)) {}

    void accepted(std::shared_ptr<Socket> socket) { served_.emplace_back(world_, plan_).connected(std::move(socket)); }
    [[nodiscard]] const std::deque<Application>& served() const { return served_; }

 private:
    World& world_;
    Application::Plan plan_;
    std::deque<Application> served_;
};

}  // namespace smc::sim
