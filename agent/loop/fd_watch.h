// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Waiting for descriptors on the control thread. The object that waits owns its FdWatch: once the FdWatch is gone, no
// callback is called any more. Timeouts belong to the state machines; nothing here has one.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <functional>
#include <memory>

#include "os/unique_fd.h"

namespace smc::loop {

// Owns a descriptor. Each when_readable() or when_writable() calls back at most once. The descriptor is added to epoll
// at the first such call only, because many a connect() is done at once and needs no waiting.
class FdWatch {
 public:
    FdWatch(asio::io_context& io, UniqueFd fd) : io_(&io), fd_(std::move(fd)) {}
    FdWatch(FdWatch&&) noexcept = default;
    FdWatch& operator=(FdWatch&&) noexcept = default;
    FdWatch(const FdWatch&) = delete;
    FdWatch& operator=(const FdWatch&) = delete;
    ~FdWatch() = default;

    [[nodiscard]] int fd() const { return descriptor_ ? descriptor_->native_handle() : fd_.get(); }
    // Adds the descriptor to epoll. If that fails (fs.epoll.max_user_watches), closes it and returns false with
    // errno; fd() is -1 from then on, and no callback is called. when_readable() and when_writable() call this.
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
    // Gives the descriptor away. No callback is called any more.
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
                                    // The completion may already be queued when the owner goes.
                                    if (!error && !weak.expired()) {
                                        then();
                                    }
                                });
    }

    asio::io_context* io_;
    UniqueFd fd_;  // until watch()
    std::shared_ptr<Descriptor> descriptor_;
};

}  // namespace smc::loop
