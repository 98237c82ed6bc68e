// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The last messages of connections, which leave when their writes are complete.
#include "datapath/smcr/link_driver.h"

namespace smc::smcr {

void LinkDriver::release_later(Element send, const Encoded& message, const Encoded& last, unsigned up_to) {
    if (is_lost()) {
        const auto view = last.view();
        return pass_on({view.begin(), view.end()});
    }
    held_back_.push_back({std::move(send), message, last, up_to});
    poller_->ready(*this);
}

void LinkDriver::send_held_back() {
    for (HeldBack& one : std::exchange(held_back_, {})) {
        if (group_->has_broken(one.up_to)) {
            held_back_.push_back(std::move(one));
        } else {
            send_last(one.message);
            release(std::move(one.send), one.last);
        }
    }
}

void LinkDriver::release(Element send, const Encoded& last) {
    // Each queued message will still take a sequence number.
    std::uint64_t until = link_->next_sequence();
    {
        const std::lock_guard lock(mutex_);
        until += queued_.size();
    }
    if (link_->retired() < until && !link_->broken()) {
        retiring_.push_back({until, std::move(send), last});
    }
    poller_->ready(*this);  // there may be a last message in the queue
}

void LinkDriver::send_last(const wire::Encoded<cdc::kMessageBytes>& message) {
    const auto view = message.view();
    if (is_lost()) {  // the connection had no other link to move to
        return pass_on({view.begin(), view.end()});
    }
    if (!send_soon({view.begin(), view.end()})) {
        link_->shut("the send queue is full: the peer accepts no messages");
    }
    poller_->ready(*this);
}

// The last message of a connection that has ended goes over another link, once that is safe (C5).
void LinkDriver::pass_on(std::vector<std::uint8_t> message) {
    if (message.empty() || message[0] != cdc::kType) {
        return;  // LLC messages are repeated by llc::GroupLlc
    }
    group_->say_later(std::move(message));
    if (const auto other = group_->pick(number_)) {
        poller_->ready(*other);
    }
}

}  // namespace smc::smcr
