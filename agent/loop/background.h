// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A thread for work that would block the control thread, and with it every client that the control thread answers.
#pragma once

#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/thread_pool.hpp>
#include <memory>
#include <utility>

namespace smc::loop {

class Background {
 public:
    explicit Background(asio::io_context& io) : io_(io) {}
    Background(const Background&) = delete;
    Background& operator=(const Background&) = delete;
    // Waits for work that has begun; its `then` is not called.
    ~Background() {
        alive_.reset();
        thread_.join();
    }

    // Calls work() on the thread, and afterwards then(result) on `io`. work() must not use data of other threads.
    template <class Work, class Then>
    void run(Work work, Then then) {
        asio::post(thread_, [&io = io_, alive = std::weak_ptr(alive_), work = std::move(work),
                             then = std::move(then)]() mutable {
            if (alive.expired()) {
                return;
            }
            asio::post(io, [alive, then = std::move(then), result = work()]() mutable {
                if (!alive.expired()) {
                    then(std::move(result));
                }
            });
        });
    }

 private:
    asio::io_context& io_;
    std::shared_ptr<int> alive_ = std::make_shared<int>();
    asio::thread_pool thread_{1};
};

}  // namespace smc::loop
