// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Waiting on the control thread. Whoever waits owns what he waits with: when that goes, nothing is told any more.
// Deadlines are the state machines' own; nothing here has a time-out of its own.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <functional>
#include <memory>

#include "os/unique_fd.h"

namespace smc::loop {

// Owns a descriptor and tells, once for each question, that it can be read or written. One that is never asked costs
// nothing: many a connect() is done at once.
class FdWatch {
 public:
    FdWatch(asio::io_context& io, UniqueFd fd) : io_(&io), fd_(std::move(fd)) {}
    FdWatch(FdWatch&&) noexcept = default;
    FdWatch& operator=(FdWatch&&) noexcept = default;
    FdWatch(const FdWatch&) = delete;
    FdWatch& operator=(const FdWatch&) = delete;
    ~FdWatch() = default;

    [[nodiscard]] int fd() const { return descriptor_ ? descriptor_->native_handle() : fd_.get(); }
    // What cannot be watched (fs.epoll.max_user_watches) is closed: false, with errno, and fd() -1 from then on;
    // nothing is ever told. The questions see to it by themselves.
    bool watch() {
        if (!descriptor_ && fd_) {
            auto descriptor = std::make_shared<Descriptor>(*io_);
            std::error_code refused;
            descriptor->assign(fd_.get(), refused);
            if (refused) {
                fd_.reset();
                errno = refused.value();
            } else {
                (void)fd_.release();
                descriptor_ = std::move(descriptor);
            }
        }
        return descriptor_ != nullptr;
    }
    void when_readable(std::function<void()> then) { wait(Descriptor::wait_read, std::move(then)); }
    void when_writable(std::function<void()> then) { wait(Descriptor::wait_write, std::move(then)); }
    // Gives the descriptor away. Nothing is told any more.
    [[nodiscard]] UniqueFd release() {
        if (!descriptor_) {
            return std::move(fd_);
        }
        UniqueFd fd(descriptor_->release());
        descriptor_.reset();
        return fd;
    }

 private:
    using Descriptor = asio::posix::stream_descriptor;

    void wait(Descriptor::wait_type what, std::function<void()> then) {
        if (!watch()) {
            return;
        }
        descriptor_->async_wait(what,
                                [weak = std::weak_ptr(descriptor_), then = std::move(then)](std::error_code error) {
                                    // The answer may be on its way already when the owner goes.
                                    if (!error && !weak.expired()) {
                                        then();
                                    }
                                });
    }

    asio::io_context* io_;
    UniqueFd fd_;  // while it is not watched
    std::shared_ptr<Descriptor> descriptor_;
};

}  // namespace smc::loop
