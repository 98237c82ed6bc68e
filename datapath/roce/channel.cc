// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/roce/channel.h"

#include <poll.h>
#include <sys/epoll.h>

namespace smc::roce {

namespace {

// LLC messages that wait to be dealt with. An honest peer has a few requests under way.
constexpr int kMaxLlcPending = 256;
constexpr auto kFarewell = std::chrono::milliseconds(300);
constexpr int kPatienceMs = 30;  // of it, for one completion
constexpr std::size_t kMaxQueued = 1024;

void add(std::atomic<std::uint64_t>& counter, std::uint64_t n = 1) {
    counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

}  // namespace

Channel::Channel(std::unique_ptr<Link> link, Hooks hooks, std::chrono::microseconds busy_poll)
    : link_(std::move(link)), hooks_(std::move(hooks)), busy_poll_(busy_poll), sends_(link_->room()) {
    source_ = {this, 0};
}

bool Channel::open(AlertToken token) {
    const std::lock_guard lock(mutex_);
    return connections_.emplace(token, std::make_unique<Connection>()).second;
}

void Channel::forget(AlertToken token) {
    const std::lock_guard lock(mutex_);
    connections_.erase(token);
}

bool Channel::send_soon(std::vector<std::uint8_t> message) {
    const std::lock_guard lock(mutex_);
    if (queued_.size() >= kMaxQueued) {
        return false;
    }
    queued_.push_back(std::move(message));
    return true;
}

void Channel::end(std::string why) {
    const std::lock_guard lock(mutex_);
    end_ = std::move(why);
}

bool Channel::start(Poller& poller) {
    poller_ = &poller;
    return poller.watch(link_->fd(), EPOLLIN, source_);
}

void Channel::send_queued() {
    const std::lock_guard lock(mutex_);
    while (!queued_.empty() && link_->send({queued_.front().data(), queued_.front().size()}) == Link::Posted::kYes) {
        add(counters_.messages_sent);
        queued_.pop_front();
    }
}

bool Channel::queue_is_empty() const {
    const std::lock_guard lock(mutex_);
    return queued_.empty();
}

void Channel::free_retired() {
    while (!retiring_.empty() && retiring_.front().first <= link_->retired()) {
        retiring_.pop_front();
        held_--;
    }
}

// All of them: who finds the room taken by the others comes back.
void Channel::wake_starved() {
    for (Connection* connection : std::exchange(starved_, {})) {
        connection->wants_room = false;
        if (connection->flow != nullptr) {
            poller_->ready(*connection->flow);
        }
    }
}

bool Channel::run(TimePoint now) {
    if (ended_) {
        return false;
    }
    send_queued();
    const auto received = counters_.messages_received.load(std::memory_order_relaxed);
    const auto retired = link_->retired();
    // Completed sends are only of interest to somebody who waits for them.
    link_->want_completions(!starved_.empty() || !retiring_.empty() || link_->room() < sends_ / 2 ||
                            !queue_is_empty() || deadline_ != TimePoint::max());
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
    {
        std::unique_lock lock(mutex_);
        if (end_) {
            if (deadline_ == TimePoint::max()) {
                deadline_ = now + kFarewell;
                more = true;  // once more, for the completions
            }
            const std::string why = *end_;
            lock.unlock();
            if (drained() || now >= deadline_) {
                link_->shut(why);
            }
        }
    }
    if (busy_poll_.count() > 0) {
        if (counters_.messages_received.load(std::memory_order_relaxed) != received) {
            last_seen_ = now;
        }
        more |= now - last_seen_ < busy_poll_;
    }
    return more || link_->wants_poll();
}

// The engine stops: what the flows said last should still leave.
void Channel::abort(Reason reason) {
    if (ended_ || poller_ == nullptr) {
        ended_ = true;
        return;
    }
    const auto until = std::chrono::steady_clock::now() + kFarewell;
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
void Channel::leave() {
    ended_ = true;
    poller_->unwatch(link_->fd());
}

Channel::Connection* Channel::attach(AlertToken token, Task& flow) {
    const std::lock_guard lock(mutex_);
    const auto it = connections_.find(token);
    if (down_ || it == connections_.end()) {
        return nullptr;
    }
    it->second->flow = &flow;
    return it->second.get();
}

void Channel::linger(AlertToken token, Element rmbe) {
    const std::lock_guard lock(mutex_);
    const auto it = connections_.find(token);
    if (it == connections_.end()) {
        return;
    }
    it->second->flow = nullptr;
    if (it->second->inbox.peer_is_done() || down_) {
        connections_.erase(it);
    } else {
        it->second->lingering.emplace(std::move(rmbe));
        held_++;
    }
}

void Channel::detach(AlertToken token, Connection& connection, Element rmbe, Element send) {
    std::erase(starved_, &connection);
    if (link_->retired() < link_->next_sequence() && !link_->broken()) {
        retiring_.emplace_back(link_->next_sequence(), std::move(send));
        held_++;
    }
    linger(token, std::move(rmbe));
    poller_->ready(*this);  // there may be a last message in the queue
}

bool Channel::has_room(Connection& connection, std::uint32_t requests) {
    // What is queued goes first, or a busy connection would starve it.
    if (link_->room() > requests && queue_is_empty()) {
        return true;
    }
    if (!connection.wants_room) {
        connection.wants_room = true;
        starved_.push_back(&connection);
        add(counters_.full);
        poller_->ready(*this);  // sends may have completed that nobody has looked at
    }
    return false;
}

Link::Posted Channel::send(const wire::Encoded<cdc::kMessageBytes>& message) {
    const auto posted = link_->send(message.view());
    if (posted == Link::Posted::kYes) {
        add(counters_.messages_sent);
    } else if (posted == Link::Posted::kBroken) {
        poller_->ready(*this);
    }
    return posted;
}

void Channel::send_last(const wire::Encoded<cdc::kMessageBytes>& message) {
    const auto view = message.view();
    if (!send_soon({view.begin(), view.end()})) {
        link_->shut("the peer does not take what it is sent");
    }
    poller_->ready(*this);
}

Link::Posted Channel::write(std::span<const std::uint8_t> from, std::uint32_t lkey, RKey rkey, VirtualAddress to) {
    const auto posted = link_->write(from, lkey, rkey, to);
    if (posted == Link::Posted::kYes) {
        add(counters_.bytes_written, from.size());
    } else if (posted == Link::Posted::kBroken) {
        poller_->ready(*this);
    }
    return posted;
}

void Channel::on_message(wire::Bytes message) {
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

void Channel::on_cdc(wire::Bytes bytes) {
    const auto decoded = cdc::decode(bytes);
    if (const auto* bad = std::get_if<Fault>(&decoded)) {
        link_->shut("CDC: " + bad->text());
        return;
    }
    const auto& message = std::get<cdc::Message>(decoded);
    Task* flow = nullptr;
    Inbox::Taken taken{};
    {
        const std::lock_guard lock(mutex_);
        const auto it = connections_.find(message.token);
        if (it == connections_.end()) {
            add(counters_.unknown_tokens);  // of a connection that is gone, or never was
            return;
        }
        flow = it->second->flow;
        taken = it->second->inbox.take(message);
        if (it->second->lingering && it->second->inbox.peer_is_done()) {
            connections_.erase(it);
            held_--;
        }
    }
    if (taken == Inbox::Taken::kStale) {
        add(counters_.stale);
    } else if (flow != nullptr) {
        if (taken == Inbox::Taken::kLost) {
            flow->abort(Reason::kLinkDown);
        }
        poller_->ready(*flow);
    }
}

void Channel::on_broken(const std::string& why) {
    std::vector<Task*> flows;
    {
        const std::lock_guard lock(mutex_);
        for (auto& [token, connection] : connections_) {
            connection->lingering.reset();
            if (connection->flow != nullptr) {
                flows.push_back(connection->flow);
            }
        }
        queued_.clear();
        down_ = true;
    }
    retiring_.clear();
    for (Task* flow : flows) {
        flow->abort(Reason::kLinkDown);
        poller_->ready(*flow);
    }
    hooks_.down(why);
}

}  // namespace smc::roce
