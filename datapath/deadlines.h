// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One deadline for each of many tasks, in a heap. A deadline that is moved leaves a stale entry in the heap, which is
// skipped when it comes up. The heap is rebuilt when most of its entries are stale.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "smc/time.h"

namespace smc {

class Deadlines {
 public:
    // kNever removes the deadline.
    void set(std::uint64_t id, TimePoint when) {
        const auto it = current_.find(id);
        if (it != current_.end() && it->second == when) {
            return;
        }
        if (when == kNever) {
            if (it != current_.end()) {
                current_.erase(it);
            }
        } else {
            current_[id] = when;
            heap_.emplace_back(when, id);
            std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
        }
        tidy();
    }

    // The earliest deadline; kNever if there is none.
    [[nodiscard]] TimePoint next() const { return heap_.empty() ? kNever : heap_.front().first; }

    // Calls expired(id) for each task whose deadline has passed, and removes that deadline.
    template <class Expired>
    void take_expired(TimePoint now, Expired&& expired) {
        while (next() <= now) {
            const auto [when, id] = heap_.front();
            pop();
            if (const auto it = current_.find(id); it != current_.end() && it->second == when) {
                current_.erase(it);
                expired(id);
            }
        }
        tidy();
    }

    [[nodiscard]] std::size_t size() const { return current_.size(); }

 private:
    using Entry = std::pair<TimePoint, std::uint64_t>;

    [[nodiscard]] bool is_stale(const Entry& entry) const {
        const auto it = current_.find(entry.second);
        return it == current_.end() || it->second != entry.first;
    }
    void pop() {
        std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
        heap_.pop_back();
    }
    // Restores two properties: the first entry is never stale, and at most about half of the entries are.
    void tidy() {
        while (!heap_.empty() && is_stale(heap_.front())) {
            pop();
        }
        if (heap_.size() > 2 * current_.size() + 64) {
            heap_.clear();
            for (const auto& [id, when] : current_) {
                heap_.emplace_back(when, id);
            }
            std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
        }
    }

    std::unordered_map<std::uint64_t, TimePoint> current_;
    std::vector<Entry> heap_;
};

}  // namespace smc
