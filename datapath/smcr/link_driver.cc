// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/smcr/link_driver.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <set>

#include "datapath/counter.h"
#include "os/clock.h"

namespace smc::smcr {

namespace {

// LLC messages that wait to be dealt with. An honest peer has a few requests under way.
constexpr int kMaxLlcPending = 256;
constexpr int kTimeoutMs = 30;  // for one completion, in abort()
constexpr std::size_t kMaxQueued = 1024;
// So many calls of poll() take more than a receive queue holds (roce.receives is at most 8192, and a poll() takes 64 of
// them). Bounded, because a peer may go on sending.
constexpr int kMostPolls = 256;

// The connection that a CDC message is about; 0: it is none.
AlertToken token_of(wire::Bytes message) {
    const auto decoded = cdc::decode(message);
    const auto* known = std::get_if<cdc::Message>(&decoded);
    return known != nullptr ? known->token : AlertToken{0};
}

}  // namespace

LinkDriver::LinkDriver(std::unique_ptr<Link> link, std::shared_ptr<GroupDriver> group, std::uint8_t number,
                       Callbacks callbacks, std::chrono::milliseconds last_messages)
    : link_(std::move(link)),
      group_(std::move(group)),
      number_(number),
      callbacks_(std::move(callbacks)),
      last_messages_(last_messages) {
    source_ = {this, 0};
}

LinkDriver::~LinkDriver() {
    struct Remains {
        std::vector<std::shared_ptr<ElementOwner>> kept;  // destroyed after the link
        std::unique_ptr<Link> link;
        std::shared_ptr<GroupDriver> group;  // set if it waits for destroyed()
        unsigned broken_as = 0;
        std::function<void()> destroyed;

        ~Remains() {
            link.reset();
            if (group) {
                group->destroyed(broken_as);
                if (destroyed) {
                    destroyed();
                }
            }
        }
    };
    if (!link_->broken()) {
        link_->shut("gone");  // even if no engine has driven the link: the peer must not write any more
    }
    auto remains = std::make_shared<Remains>();
    remains->kept = std::move(kept_);
    remains->link = std::move(link_);
    if (broken_as_ != 0) {
        remains->group = group_;
        remains->broken_as = broken_as_;
        remains->destroyed = std::move(callbacks_.destroyed);
    }
    if (callbacks_.destroy_later) {
        callbacks_.destroy_later(std::move(remains));  // the only reference, so nothing is destroyed on this thread
    }
}

bool LinkDriver::send_soon(std::vector<std::uint8_t> message) {
    const std::lock_guard lock(mutex_);
    if (queued_.size() >= kMaxQueued) {
        return false;
    }
    queued_.push_back(std::move(message));
    return true;
}

void LinkDriver::end(std::string why, bool at_once) {
    const std::lock_guard lock(mutex_);
    end_ = std::move(why);
    at_once_ = at_once;
}

void LinkDriver::keep(std::vector<std::shared_ptr<ElementOwner>> memory) {
    const std::lock_guard lock(mutex_);
    kept_ = std::move(memory);
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

void LinkDriver::free_retired() {
    while (!retiring_.empty() && retiring_.front().until <= link_->retired()) {
        retiring_.pop_front();
    }
}

// False: no request has been retired since the last call.
bool LinkDriver::retire() {
    if (std::exchange(retired_, link_->retired()) == link_->retired()) {
        return false;
    }
    free_retired();
    wake_starved();
    return true;
}

// Runs all connections that want room; one that finds it taken by the others asks again.
void LinkDriver::wake_starved() {
    for (Task* task : std::exchange(starved_, {})) {
        poller_->ready(*task);
    }
}

bool LinkDriver::run(TimePoint now) {
    if (ended_) {
        return false;
    }
    group_->settle(*poller_);
    send_held_back();
    send_queued();
    // Completions of sends are wanted only if something waits for them or the send queue is more than half full.
    link_->want_completions(is_awaited() || link_->room() < link_->capacity() / 2);
    bool more = poll(std::exchange(readable_, false), false);
    wake_up(now);
    send_queued();
    retire();
    if (link_->broken()) {
        leave();
        return false;
    }
    more |= end_if_wanted(now);
    return more || !sleep(now);
}

bool LinkDriver::has_news() const {
    return counters_.messages_received.load(std::memory_order_relaxed) != heard_;
}

void LinkDriver::wake_up(TimePoint now) {
    if (!sleeps_) {
        return;
    }
    if (has_news()) {
        spin_.woken(now);
        sleeps_ = false;
        spins_until_ = kNever;
    } else if (spins_until_ != kNever && now >= spins_until_) {
        spins_until_ = kNever;  // still asleep, but no longer busy-polled
    }
}

// False: there is something to do already. While the task is busy-polled, the device is not asked for events.
bool LinkDriver::sleep(TimePoint now) {
    if (!std::exchange(sleeps_, true)) {
        heard_ = counters_.messages_received.load(std::memory_order_relaxed);
        const auto time = spin_.before_sleep(now, poller_->longest_spin(now));
        spins_until_ = time.count() > 0 ? now + time : kNever;
    }
    if (spins_until_ != kNever && !link_->wants_poll()) {
        poller_->spin(*this, spins_until_, Poller::Expects::kEvents);
        return true;
    }
    const bool more = poll(false, true);
    const bool again = retire() && is_awaited();
    return !more && !again && !link_->wants_poll() && !link_->broken() && !has_news();
}

bool LinkDriver::look() {
    const bool more = poll(false, false);
    const bool completed = is_awaited() && link_->retired() != retired_;
    return more || completed || has_news() || link_->wants_poll() || link_->broken();
}

bool LinkDriver::is_awaited() const {
    return !starved_.empty() || !retiring_.empty() || !queue_is_empty() || deadline_ != kNever;
}

// True: run once more, for the completions of what was sent last.
bool LinkDriver::end_if_wanted(TimePoint now) {
    std::optional<std::string> why;
    bool at_once = false;
    {
        const std::lock_guard lock(mutex_);
        why = end_;
        at_once = at_once_;
    }
    if (!why) {
        return false;
    }
    const bool first = deadline_ == kNever;
    if (first) {
        deadline_ = now + last_messages_;
    }
    if (at_once || drained() || now >= deadline_) {
        link_->shut(*why);
    }
    return first;
}

// Called when the engine stops. The last messages of connections should still leave.
void LinkDriver::abort(Reason reason) {
    if (ended_ || poller_ == nullptr) {
        ended_ = true;
        return;
    }
    const auto until = os::now() + last_messages_;
    link_->want_completions(true);
    bool more = poll(true, true);
    send_queued();
    while (!drained() && !link_->broken() && os::now() < until) {
        pollfd waiting{link_->fd(), POLLIN, 0};
        if (!more && ::poll(&waiting, 1, kTimeoutMs) == 0) {
            break;  // the peer does not answer
        }
        more = poll(true, true);
        send_queued();
    }
    link_->shut(std::string(reason_text(reason)));
    for (int i = 0; i < kMostPolls && poll(true, false) && !link_->broken(); i++) {
    }
    leave();
}

// Must unwatch, because the agent's link group may keep this object, and with it the descriptor.
void LinkDriver::leave() {
    ended_ = true;
    poller_->unwatch(link_->fd());
}

bool LinkDriver::poll(bool readable, bool asks) {
    polling_ = true;
    const bool more = link_->poll(*this, readable, asks);
    polling_ = false;
    return more;
}

void LinkDriver::drain() {
    bool more = !polling_ && !ended_;
    for (int i = 0; i < kMostPolls && more && !link_->broken(); i++) {
        more = poll(true, true);
    }
    if (more && !link_->broken()) {
        poller_->ready(*this);  // poll() has not asked for an event yet
    }
    if (!polling_ && !ended_ && retire()) {
        poller_->ready(*this);
    }
}

bool LinkDriver::has_room(std::uint32_t requests) const {
    // Queued messages go first, or a busy connection would starve them.
    return link_->room() > requests && queue_is_empty();
}

void LinkDriver::want_room(Task& task) {
    if (std::ranges::find(starved_, &task) == starved_.end()) {
        starved_.push_back(&task);
        add(counters_.full);
        poller_->ready(*this);  // there may be completions that were not polled yet
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
        link_->shut("more than 256 LLC messages of the peer wait to be handled");
        return;
    }
    callbacks_.llc({message.begin(), message.end()});
}

void LinkDriver::on_cdc(wire::Bytes bytes) {
    const auto decoded = cdc::decode(bytes);
    if (const auto* bad = std::get_if<Fault>(&decoded)) {
        link_->shut("CDC: " + bad->text());
        return;
    }
    const auto heard = group_->on_cdc(std::get<cdc::Message>(decoded), *this, *poller_);
    if (heard == GroupDriver::CdcResult::kUnknown) {
        add(counters_.unknown_tokens);
    } else if (heard == GroupDriver::CdcResult::kStale) {
        add(counters_.stale);
    }
}

void LinkDriver::on_broken(const std::string& why) {
    std::deque<std::vector<std::uint8_t>> queued;
    {
        const std::lock_guard lock(mutex_);
        queued = std::exchange(queued_, {});
    }
    lost_.store(true, std::memory_order_relaxed);
    wake_starved();
    broken_as_ = group_->lost(*this, *poller_);  // C3
    std::set<AlertToken> said;
    const auto pass_on_last = [&](const Encoded& last) {
        const auto view = last.view();
        said.insert(token_of(view));
        pass_on({view.begin(), view.end()});
    };
    for (const Retiring& gone : std::exchange(retiring_, {})) {
        pass_on_last(gone.last);
    }
    for (const HeldBack& gone : std::exchange(held_back_, {})) {
        pass_on_last(gone.last);
    }
    for (auto& message : queued) {
        // The last message of a connection may be among them as it was before the link broke. What was passed on says
        // only what arrived.
        if (!said.contains(token_of(message))) {
            pass_on(std::move(message));
        }
    }
    callbacks_.down(why);
}

}  // namespace smc::smcr
