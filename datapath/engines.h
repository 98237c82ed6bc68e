// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The data path: one engine or several, so that it may use more than one processor. A connection may move from one
// engine to another (Engine::move()); a link and its connections stay in the same one.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "datapath/engine.h"

namespace smc {

class Engines {
 public:
    // `count`: at least 1. `on_end` is called on the engines' threads.
    static Result<std::unique_ptr<Engines>> start(unsigned count, const Engine::OnEnd& on_end,
                                                  std::chrono::microseconds longest_spin,
                                                  const Engine::BusyPolls& busy_polls = {});

    // All of them end before the first is destroyed: until then each may pass a task or a kick on to another.
    ~Engines();
    Engines(const Engines&) = delete;
    Engines& operator=(const Engines&) = delete;

    // The engine with the fewest tasks.
    [[nodiscard]] Engine& least_busy() const;
    [[nodiscard]] std::size_t count() const { return engines_.size(); }
    // The number of tasks of each engine.
    [[nodiscard]] std::vector<std::size_t> tasks() const;
    [[nodiscard]] Engine& at(std::size_t number) const { return *engines_[number]; }
    [[nodiscard]] std::chrono::microseconds longest_spin() const { return longest_spin_; }

    // Of all engines together; see Engine.
    [[nodiscard]] bool have_iterated() const;
    [[nodiscard]] std::chrono::nanoseconds processor_time() const;
    [[nodiscard]] std::uint64_t moved() const;
    [[nodiscard]] bool stop(std::chrono::milliseconds timeout) const;

 private:
    explicit Engines(std::chrono::microseconds longest_spin) : longest_spin_(longest_spin) {}
    std::chrono::microseconds longest_spin_;
    std::vector<std::unique_ptr<Engine>> engines_;
};

}  // namespace smc
