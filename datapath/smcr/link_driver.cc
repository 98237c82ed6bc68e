// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/smcr/link_driver.h"

#include <poll.h>
#include <sys/epoll.h>

#include "datapath/counter.h"

namespace smc::smcr {

namespace {

// LLC messages that wait to be dealt with. An honest peer has a few requests under way.
constexpr int kMaxLlcPending = 256;
constexpr auto kLastMessages = std::chrono::milliseconds(300);
constexpr int kPatienceMs = 30;  // of it, for one completion
constexpr std::size_t kMaxQueued = 1024;

// The first word of a connection is its last. What aborts later may have said something before.
bool is_stillborn(const cdc::Message& message) {
    return message.sequence == 1 && (message.state & cdc::kAbnormalClose) != 0;
}

}  // namespace

LinkDriver::LinkDriver(std::unique_ptr<Link> link, Hooks hooks, std::chrono::microseconds busy_poll)
    : link_(std::move(link)), hooks_(std::move(hooks)), busy_poll_(busy_poll) {
    source_ = {this, 0};
}

bool LinkDriver::open(AlertToken token) {
    const std::lock_guard lock(mutex_);
    // C1: its inbox is there before the peer learns of the token.
    return receivers_.emplace(token, std::make_unique<Receiver>()).second;
}

void LinkDriver::await_message(AlertToken token, Spoke spoke) {
    bool aborts = false;
    {
        const std::lock_guard lock(mutex_);
        const auto it = receivers_.find(token);
        if (it == receivers_.end()) {
            return;
        }
        if (it->second->inbox.empty()) {
            it->second->spoke = std::move(spoke);
            return;
        }
        aborts = is_stillborn(it->second->inbox.latest());
    }
    spoke(aborts);
}

void LinkDriver::forget(AlertToken token) {
    const std::lock_guard lock(mutex_);
    receivers_.erase(token);
}

void LinkDriver::peer_left(AlertToken token) {
    const std::lock_guard lock(mutex_);
    left_.push_back(token);
}

bool LinkDriver::send_soon(std::vector<std::uint8_t> message) {
    const std::lock_guard lock(mutex_);
    if (queued_.size() >= kMaxQueued) {
        return false;
    }
    queued_.push_back(std::move(message));
    return true;
}

void LinkDriver::end(std::string why) {
    const std::lock_guard lock(mutex_);
    end_ = std::move(why);
}

bool LinkDriver::start(Poller& poller) {
    poller_ = &poller;
    return poller.watch(link_->fd(), EPOLLIN, source_);
}

void LinkDriver::send_queued() {
    const std::lock_guard lock(mutex_);
    while (!queued_.empty() && link_->send({queued_.front().data(), queued_.front().size()}) == Link::Posted::kYes) {
        add(counters_.messages_sent);
        queued_.pop_front();
    }
}

bool LinkDriver::queue_is_empty() const {
    const std::lock_guard lock(mutex_);
    return queued_.empty();
}

void LinkDriver::end_left() {
    std::vector<Task*> tasks;
    {
        const std::lock_guard lock(mutex_);
        for (const AlertToken token : std::exchange(left_, {})) {
            const auto it = receivers_.find(token);
            if (it == receivers_.end()) {
                continue;
            }
            it->second->peer_has_left = true;
            if (it->second->lingering) {  // C2
                receivers_.erase(it);
            } else if (it->second->task != nullptr) {
                tasks.push_back(it->second->task);
            }
        }
    }
    for (Task* task : tasks) {
        task->abort(Reason::kRmbeTakenAgain);
        poller_->ready(*task);
    }
}

void LinkDriver::free_retired() {
    while (!retiring_.empty() && retiring_.front().first <= link_->retired()) {
        retiring_.pop_front();
    }
}

// All of them are run: one that finds the room taken by the others asks again.
void LinkDriver::wake_starved() {
    for (Receiver* receiver : std::exchange(starved_, {})) {
        receiver->wants_room = false;
        if (receiver->task != nullptr) {
            poller_->ready(*receiver->task);
        }
    }
}

bool LinkDriver::run(TimePoint now) {
    if (ended_) {
        return false;
    }
    end_left();
    send_queued();
    const auto received = counters_.messages_received.load(std::memory_order_relaxed);
    const auto retired = link_->retired();
    // Completed sends are only of interest to somebody who waits for them.
    link_->want_completions(!starved_.empty() || !retiring_.empty() || link_->room() < link_->capacity() / 2 ||
                            !queue_is_empty() || deadline_ != kNever);
    bool more = link_->poll(*this, std::exchange(readable_, false));
    send_queued();
    if (link_->retired() != retired) {
        free_retired();
        wake_starved();
    }
    if (link_->broken()) {
        leave();
        return false;
    }
    more |= end_if_wanted(now);
    if (busy_poll_.count() > 0) {
        if (counters_.messages_received.load(std::memory_order_relaxed) != received) {
            last_seen_ = now;
        }
        more |= now - last_seen_ < busy_poll_;
    }
    return more || link_->wants_poll();
}

// True: run once more, for the completions of what was sent last.
bool LinkDriver::end_if_wanted(TimePoint now) {
    std::optional<std::string> why;
    {
        const std::lock_guard lock(mutex_);
        why = end_;
    }
    if (!why) {
        return false;
    }
    const bool first = deadline_ == kNever;
    if (first) {
        deadline_ = now + kLastMessages;
    }
    if (drained() || now >= deadline_) {
        link_->shut(*why);
    }
    return first;
}

// The engine stops: what the connections said last should still leave.
void LinkDriver::abort(Reason reason) {
    if (ended_ || poller_ == nullptr) {
        ended_ = true;
        return;
    }
    const auto until = std::chrono::steady_clock::now() + kLastMessages;
    link_->want_completions(true);
    bool more = link_->poll(*this, true);
    send_queued();
    while (!drained() && !link_->broken() && std::chrono::steady_clock::now() < until) {
        pollfd waiting{link_->fd(), POLLIN, 0};
        if (!more && ::poll(&waiting, 1, kPatienceMs) == 0) {
            break;  // nobody is there
        }
        more = link_->poll(*this, true);
        send_queued();
    }
    link_->shut(std::string(reason_text(reason)));
    link_->poll(*this, true);
    leave();
}

// The group keeps this object, and with it the descriptor.
void LinkDriver::leave() {
    ended_ = true;
    poller_->unwatch(link_->fd());
}

LinkDriver::Receiver* LinkDriver::attach(AlertToken token, Task& task) {
    const std::lock_guard lock(mutex_);
    const auto it = receivers_.find(token);
    if (down_ || it == receivers_.end() || it->second->peer_has_left) {
        return nullptr;
    }
    it->second->task = &task;
    return it->second.get();
}

void LinkDriver::linger(AlertToken token, Element rmbe) {
    const std::lock_guard lock(mutex_);
    const auto it = receivers_.find(token);
    if (it == receivers_.end()) {
        return;
    }
    it->second->task = nullptr;
    if (it->second->inbox.peer_is_done() || it->second->peer_has_left || down_) {
        receivers_.erase(it);
    } else {
        it->second->lingering.emplace(std::move(rmbe));
    }
}

void LinkDriver::detach(AlertToken token, Receiver& receiver, Element rmbe, Element send) {
    std::erase(starved_, &receiver);
    if (link_->retired() < link_->next_sequence() && !link_->broken()) {
        retiring_.emplace_back(link_->next_sequence(), std::move(send));
    }
    linger(token, std::move(rmbe));
    poller_->ready(*this);  // there may be a last message in the queue
}

bool LinkDriver::has_room(std::uint32_t requests) const {
    // What is queued goes first, or a busy connection would starve it.
    return link_->room() > requests && queue_is_empty();
}

void LinkDriver::want_room(Receiver& receiver) {
    if (!receiver.wants_room) {
        receiver.wants_room = true;
        starved_.push_back(&receiver);
        add(counters_.full);
        poller_->ready(*this);  // sends may have completed that nobody has looked at
    }
}

Link::Posted LinkDriver::send(const wire::Encoded<cdc::kMessageBytes>& message) {
    const auto posted = link_->send(message.view());
    if (posted == Link::Posted::kYes) {
        add(counters_.messages_sent);
    } else if (posted == Link::Posted::kBroken) {
        poller_->ready(*this);
    }
    return posted;
}

void LinkDriver::send_last(const wire::Encoded<cdc::kMessageBytes>& message) {
    const auto view = message.view();
    if (!send_soon({view.begin(), view.end()})) {
        link_->shut("the peer does not take what it is sent");
    }
    poller_->ready(*this);
}

Link::Posted LinkDriver::write(std::span<const std::uint8_t> from, std::uint32_t lkey, RKey rkey, VirtualAddress to) {
    const auto posted = link_->write(from, lkey, rkey, to);
    if (posted == Link::Posted::kYes) {
        add(counters_.bytes_written, from.size());
    } else if (posted == Link::Posted::kBroken) {
        poller_->ready(*this);
    }
    return posted;
}

void LinkDriver::on_message(wire::Bytes message) {
    add(counters_.messages_received);
    if (!message.empty() && message[0] == cdc::kType) {
        on_cdc(message);
        return;
    }
    if (llc_pending_.fetch_add(1) >= kMaxLlcPending) {
        link_->shut("the peer sends more LLC messages than can be dealt with");
        return;
    }
    hooks_.llc({message.begin(), message.end()});
}

void LinkDriver::on_cdc(wire::Bytes bytes) {
    const auto decoded = cdc::decode(bytes);
    if (const auto* bad = std::get_if<Fault>(&decoded)) {
        link_->shut("CDC: " + bad->text());
        return;
    }
    const auto& message = std::get<cdc::Message>(decoded);
    Task* task = nullptr;
    flow::CdcInbox::Taken taken{};
    Spoke spoke;
    {
        const std::lock_guard lock(mutex_);
        const auto it = receivers_.find(message.token);
        if (it == receivers_.end()) {
            add(counters_.unknown_tokens);  // of a connection that is gone, or never was
            return;
        }
        task = it->second->task;
        taken = it->second->inbox.take(message);
        if (taken == flow::CdcInbox::Taken::kYes) {
            spoke = std::exchange(it->second->spoke, nullptr);
        }
        if (it->second->lingering && it->second->inbox.peer_is_done()) {  // C2
            receivers_.erase(it);
        }
    }
    if (spoke) {
        spoke(is_stillborn(message));
    }
    if (taken == flow::CdcInbox::Taken::kStale) {
        add(counters_.stale);
    } else if (task != nullptr) {
        if (taken == flow::CdcInbox::Taken::kLost) {
            task->abort(Reason::kLinkDown);
        }
        poller_->ready(*task);
    }
}

void LinkDriver::on_broken(const std::string& why) {
    std::vector<Task*> tasks;
    {
        const std::lock_guard lock(mutex_);
        for (auto& [token, receiver] : receivers_) {
            receiver->lingering.reset();
            if (receiver->task != nullptr) {
                tasks.push_back(receiver->task);
            }
        }
        queued_.clear();
        down_ = true;
    }
    retiring_.clear();
    for (Task* task : tasks) {  // C3
        task->abort(Reason::kLinkDown);
        poller_->ready(*task);
    }
    hooks_.down(why);
}

}  // namespace smc::smcr
