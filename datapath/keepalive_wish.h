// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <atomic>
#include <mutex>
#include <optional>

#include "os/keepalive_terms.h"

namespace smc {

// The keepalive options that an application has set on its socket, passed from the control thread, which learns of
// them, to the connection's engine.
class KeepaliveWish {
 public:
    // From any thread; then kick() the task.
    void set(const KeepaliveTerms& terms) {
        const std::lock_guard lock(mutex_);
        terms_ = terms;
        is_new_ = true;
    }
    // The terms that were set since the last call; nothing: none were. Engine's thread.
    std::optional<KeepaliveTerms> take() {
        if (!is_new_.load(std::memory_order_relaxed)) {
            return std::nullopt;
        }
        const std::lock_guard lock(mutex_);
        is_new_ = false;
        return terms_;
    }

 private:
    std::mutex mutex_;  // guards terms_
    KeepaliveTerms terms_;
    std::atomic<bool> is_new_{false};
};

}  // namespace smc
