// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Waiting on the control thread. Whoever waits owns what he waits with: when that goes, nothing is told any more.
// Deadlines are the state machines' own; nothing here has a time-out of its own.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <functional>
#include <memory>

#include "os/unique_fd.h"

namespace smc::loop {

// Owns a descriptor and tells, once for each question, that it can be read or written.
class FdWatch {
 public:
    // What cannot be watched (fs.epoll.max_user_watches) is closed: fd() is -1 then, and nothing is ever told.
    FdWatch(asio::io_context& io, UniqueFd fd) : descriptor_(std::make_shared<Descriptor>(io)) {
        std::error_code refused;
        descriptor_->assign(fd.get(), refused);
        if (!refused) {
            (void)fd.release();
        }
    }
    FdWatch(FdWatch&&) noexcept = default;
    FdWatch& operator=(FdWatch&& other) noexcept {
        close();
        descriptor_ = std::move(other.descriptor_);
        return *this;
    }
    FdWatch(const FdWatch&) = delete;
    FdWatch& operator=(const FdWatch&) = delete;
    ~FdWatch() { close(); }

    [[nodiscard]] int fd() const { return descriptor_->native_handle(); }
    [[nodiscard]] explicit operator bool() const { return descriptor_->is_open(); }
    void when_readable(std::function<void()> then) { wait(Descriptor::wait_read, std::move(then)); }
    void when_writable(std::function<void()> then) { wait(Descriptor::wait_write, std::move(then)); }
    // Gives the descriptor away. Nothing is told any more.
    [[nodiscard]] UniqueFd release() {
        UniqueFd fd(descriptor_->release());
        descriptor_.reset();
        return fd;
    }

 private:
    using Descriptor = asio::posix::stream_descriptor;

    void wait(Descriptor::wait_type what, std::function<void()> then) {
        descriptor_->async_wait(what,
                                [weak = std::weak_ptr(descriptor_), then = std::move(then)](std::error_code error) {
                                    // The answer may be on its way already when the owner goes.
                                    if (!error && !weak.expired()) {
                                        then();
                                    }
                                });
    }
    void close() { descriptor_.reset(); }

    std::shared_ptr<Descriptor> descriptor_;
};

}  // namespace smc::loop
