// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One timer for an object that has a next_deadline().
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <memory>

#include "os/clock.h"
#include "smc/time.h"

namespace smc::loop {

class Deadline {
 public:
    Deadline(asio::io_context& io, std::function<void()> expired) : timer_(io), expired_(std::move(expired)) {}
    ~Deadline() = default;
    Deadline(const Deadline&) = delete;
    Deadline& operator=(const Deadline&) = delete;

    // Calls `expired` at `when`, unless set() is called again before. kNever: never.
    void set(TimePoint when) {
        if (when == when_) {
            return;
        }
        when_ = when;
        timer_.cancel();
        armed_ = std::make_shared<int>();  // a completion that is already queued belongs to the old deadline
        if (when == kNever) {
            return;
        }
        timer_.expires_at(when);
        timer_.async_wait([this, armed = std::weak_ptr(armed_)](std::error_code error) {
            if (!error && !armed.expired()) {
                when_ = kNever;
                expired_();
            }
        });
    }
    void set_in(std::chrono::milliseconds time) { set(os::now() + time); }

 private:
    asio::steady_timer timer_;
    std::function<void()> expired_;
    TimePoint when_ = kNever;
    std::shared_ptr<int> armed_;
};

}  // namespace smc::loop
