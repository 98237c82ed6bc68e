// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "memory_link.h"

#include <sys/eventfd.h>

#include <cstring>
#include <deque>
#include <mutex>

namespace smc::test {

// The state of one end, which the other end writes to.
struct MemoryLink::Side {
    std::mutex mutex;
    std::deque<std::vector<std::uint8_t>> messages;
    std::uint64_t retired = 0;  // of the requests that this end posted
    bool gone = false;          // the other end is
    bool armed = true, wants_completions = false;
    UniqueFd event{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};

    // Something has come. As with completion queues, fd() tells that once, and only if this end has asked for it.
    void wake() {
        if (std::exchange(armed, false)) {
            const std::uint64_t one = 1;
            [[maybe_unused]] const ssize_t written = ::write(event.get(), &one, sizeof one);
        }
    }
};

std::pair<std::unique_ptr<MemoryLink>, std::unique_ptr<MemoryLink>> MemoryLink::pair(std::uint32_t capacity) {
    const auto a = std::make_shared<Side>(), b = std::make_shared<Side>();
    return {std::unique_ptr<MemoryLink>(new MemoryLink(a, b, capacity, QpEnd{{}, {}, Qpn{1}, {}, {}})),
            std::unique_ptr<MemoryLink>(new MemoryLink(b, a, capacity, QpEnd{{}, {}, Qpn{2}, {}, {}}))};
}

MemoryLink::MemoryLink(std::shared_ptr<Side> own, std::shared_ptr<Side> peer, std::uint32_t capacity, QpEnd end)
    : own_(std::move(own)), peer_(std::move(peer)), capacity_(capacity), end_(end) {}

MemoryLink::~MemoryLink() {
    shut("gone");
}

int MemoryLink::fd() const {
    return own_->event.get();
}

MemoryLink::Posted MemoryLink::send(wire::Bytes message) {
    if (!failure_.empty()) {
        return Posted::kBroken;
    }
    if (room() == 0) {
        return Posted::kFull;
    }
    posted_++;
    const std::scoped_lock lock(own_->mutex, peer_->mutex);
    if (own_->gone) {
        return Posted::kYes;  // like a queue pair: the failure shows later
    }
    for (const Write& write : writes_) {  // Q2
        std::memcpy(write.to, write.bytes.data(), write.bytes.size());
    }
    writes_.clear();
    peer_->messages.emplace_back(message.begin(), message.end());
    peer_->wake();
    own_->retired = posted_;  // Q1
    if (own_->wants_completions) {
        own_->wake();
    }
    return Posted::kYes;
}

MemoryLink::Posted MemoryLink::write(std::span<const std::uint8_t> from, std::uint32_t, RKey, VirtualAddress to) {
    if (!failure_.empty()) {
        return Posted::kBroken;
    }
    if (room() < 2) {
        return Posted::kFull;  // Q4
    }
    posted_++;
    writes_.push_back({{from.begin(), from.end()}, reinterpret_cast<std::uint8_t*>(static_cast<std::uintptr_t>(to))});
    return Posted::kYes;
}

void MemoryLink::shut(std::string why) {
    if (!failure_.empty()) {
        return;
    }
    failure_ = std::move(why);
    const std::lock_guard lock(peer_->mutex);
    peer_->gone = true;
    peer_->wake();
}

void MemoryLink::want_completions(bool wanted) {
    const std::lock_guard lock(own_->mutex);
    own_->wants_completions = wanted;
}

bool MemoryLink::asked() const {
    const std::lock_guard lock(own_->mutex);
    return own_->armed;
}

bool MemoryLink::poll(smcr::LinkHandler& handler, bool readable, bool asks) {
    if (readable) {
        std::uint64_t count = 0;
        [[maybe_unused]] const ssize_t n = ::read(own_->event.get(), &count, sizeof count);
    }
    constexpr int kPerPoll = 16;
    bool more = false;
    for (int i = 0; i < kPerPoll; i++) {
        std::vector<std::uint8_t> message;
        {
            const std::lock_guard lock(own_->mutex);
            retired_ = own_->retired;
            if (own_->messages.empty()) {
                own_->armed |= asks;
                if (own_->gone && failure_.empty()) {
                    failure_ = "the peer is gone";
                }
                break;
            }
            message = std::move(own_->messages.front());
            own_->messages.pop_front();
            more = !own_->messages.empty();
        }
        handler.on_message(message);
    }
    if (!failure_.empty() && !broken_ && !more) {
        broken_ = true;
        handler.on_broken(failure_);  // Q3
    }
    return more && !broken_;
}

}  // namespace smc::test
