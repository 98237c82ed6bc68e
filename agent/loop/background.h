// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A thread for what takes too long for the control thread: who is answered there waits meanwhile.
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
    // Waits for the work that has begun. What comes of it is told to nobody.
    ~Background() {
        alive_.reset();
        thread_.join();
    }

    // work() on the thread, which shares nothing with anybody; then(its result) on `io`.
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
