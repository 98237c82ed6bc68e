// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Waiting for descriptors and events in coroutines, always with a deadline.
#pragma once

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/redirect_error.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_awaitable.hpp>

#include <chrono>
#include <memory>
#include <optional>

#include "os/unique_fd.h"

namespace smc {

using TimePoint = std::chrono::steady_clock::time_point;

enum class Waited { kReady, kTimeout, kCancelled };

// Something that happens once, elsewhere on the same thread.
class Event {
 public:
    explicit Event(asio::io_context& io) : timer_(io) {}

    void set() {
        set_ = true;
        timer_.cancel();
    }
    [[nodiscard]] bool is_set() const { return set_; }

    asio::awaitable<bool> wait(TimePoint deadline) {
        if (!set_) {
            timer_.expires_at(deadline);
            std::error_code ignored;
            co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
        }
        co_return set_;
    }

 private:
    asio::steady_timer timer_;
    bool set_ = false;
};

// Owns a descriptor while coroutines wait for it. One waiter at a time.
class AsyncFd {
 public:
    enum For { kRead, kWrite };

    AsyncFd(asio::io_context& io, UniqueFd fd)
        : state_(std::make_shared<State>(State{{io, fd.release()}, asio::steady_timer(io)})) {}

    [[nodiscard]] int fd() const { return state_->descriptor.native_handle(); }

    asio::awaitable<Waited> wait(For what, TimePoint deadline) {
        const auto state = state_;  // outlives this object's owner
        if (state->cancelled) {
            co_return Waited::kCancelled;
        }
        state->timed_out = false;
        state->timer.expires_at(deadline);
        state->timer.async_wait([weak = std::weak_ptr(state), turn = ++state->turn](std::error_code error) {
            const auto strong = weak.lock();
            // a timer that fired just as its wait ended must not cancel the next one
            if (!error && strong && strong->turn == turn) {
                strong->timed_out = true;
                strong->descriptor.cancel();
            }
        });
        std::error_code error;
        co_await state->descriptor.async_wait(
            what == kRead ? asio::posix::stream_descriptor::wait_read : asio::posix::stream_descriptor::wait_write,
            asio::redirect_error(asio::use_awaitable, error));
        state->turn++;
        state->timer.cancel();
        if (!error) {
            co_return Waited::kReady;
        }
        co_return state->timed_out ? Waited::kTimeout : Waited::kCancelled;
    }

    // The coroutine that waits now, if any, gets kCancelled.
    void interrupt() {
        std::error_code ignored;
        state_->descriptor.cancel(ignored);
    }
    // The waiting coroutine, now or later, gets kCancelled.
    void cancel() {
        state_->cancelled = true;
        std::error_code ignored;
        state_->descriptor.cancel(ignored);
    }
    // Gives the descriptor away.
    [[nodiscard]] UniqueFd release() { return UniqueFd(state_->descriptor.release()); }

 private:
    struct State {
        asio::posix::stream_descriptor descriptor;
        asio::steady_timer timer;
        std::uint64_t turn = 0;
        bool timed_out = false;
        bool cancelled = false;
    };
    std::shared_ptr<State> state_;
};

}  // namespace smc
