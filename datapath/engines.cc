// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/engines.h"

#include <algorithm>
#include <iterator>

#include "os/clock.h"

namespace smc {

Result<std::unique_ptr<Engines>> Engines::start(unsigned count, const Engine::OnEnd& on_end,
                                                std::chrono::microseconds longest_spin,
                                                const Engine::BusyPolls& busy_polls) {
    std::unique_ptr<Engines> all(new Engines(longest_spin));
    for (unsigned i = 0; i < count; i++) {
        auto engine = Engine::start(on_end, longest_spin, busy_polls);
        if (!engine) {
            return engine.error();
        }
        all->engines_.push_back(std::move(*engine));
    }
    return all;
}

Engines::~Engines() {
    (void)stop(std::chrono::milliseconds::max());
}

Engine& Engines::least_busy() const {
    return **std::ranges::min_element(engines_, {}, [](const auto& engine) { return engine->tasks(); });
}

std::vector<std::size_t> Engines::tasks() const {
    std::vector<std::size_t> counts;
    std::ranges::transform(engines_, std::back_inserter(counts), [](const auto& engine) { return engine->tasks(); });
    return counts;
}

// Not all_of(), which stops at the first engine that hangs: every engine has to be asked each time.
bool Engines::have_iterated() const {
    return std::ranges::count_if(engines_, [](const auto& engine) { return !engine->has_iterated(); }) == 0;
}

std::chrono::nanoseconds Engines::processor_time() const {
    std::chrono::nanoseconds sum{};
    for (const auto& engine : engines_) {
        sum += engine->processor_time();
    }
    return sum;
}

std::uint64_t Engines::moved() const {
    std::uint64_t sum = 0;
    for (const auto& engine : engines_) {
        sum += engine->moved();
    }
    return sum;
}

bool Engines::stop(std::chrono::milliseconds timeout) const {
    for (const auto& engine : engines_) {
        engine->begin_stop();  // one that hangs does not keep the others from ending in order
    }
    if (timeout == std::chrono::milliseconds::max()) {
        return std::ranges::all_of(engines_, [](const auto& engine) { return engine->stop(); });
    }
    const auto until = os::now() + timeout;
    return std::ranges::all_of(engines_, [&](const auto& engine) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - os::now());
        return engine->stop(std::max(left, std::chrono::milliseconds(0)));
    });
}

}  // namespace smc
