// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Limits the connections of each network namespace, or of each cgroup, so that none of them can use up the whole.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>

namespace smc {

class Quota {
 public:
    // Called after `whose` has reached its limit, or is below it again.
    using OnLimit = std::function<void(std::uint64_t whose)>;

    Quota(std::size_t limit, OnLimit on_full) : limit_(limit), on_full_(std::move(on_full)) {}

    // `beyond`: so many more than the limit are allowed.
    [[nodiscard]] bool is_below_limit(std::uint64_t whose, std::size_t beyond = 0) const {
        const auto it = taken_.find(whose);
        return it == taken_.end() || it->second < limit_ + beyond;
    }
    // on_full_ is called for those for whom this makes a difference.
    void set_limit(std::size_t limit) {
        const std::size_t before = std::exchange(limit_, limit);
        for (const auto& [whose, taken] : std::unordered_map(taken_)) {
            if ((taken < before) != (taken < limit)) {
                on_full_(whose);
            }
        }
    }
    void take(std::uint64_t whose) {
        if (++taken_[whose] == limit_) {
            on_full_(whose);
        }
    }
    void give_back(std::uint64_t whose) {
        const auto it = taken_.find(whose);
        if (it == taken_.end()) {
            return;
        }
        const bool was_full = it->second == limit_;  // more than that are there after set_limit()
        if (--it->second == 0) {
            taken_.erase(it);
        }
        if (was_full) {
            on_full_(whose);
        }
    }

 private:
    std::size_t limit_;
    OnLimit on_full_;
    std::unordered_map<std::uint64_t, std::size_t> taken_;
};

}  // namespace smc
