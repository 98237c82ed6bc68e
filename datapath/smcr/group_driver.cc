// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/smcr/group_driver.h"

#include <algorithm>
#include <utility>

#include "datapath/smcr/link_driver.h"

namespace smc::smcr {

namespace {

// Whether the first message of a connection already aborts it: the peer has then sent no data.
bool is_stillborn(const cdc::Message& message) {
    return message.sequence == 1 && (message.state & cdc::kAbnormalClose) != 0;
}

// Whether `cursor` is further than `before`.
bool is_beyond(const cdc::Cursor& cursor, const cdc::Cursor& before) {
    const auto laps = static_cast<std::int16_t>(static_cast<std::uint16_t>(cursor.wrap - before.wrap));
    return laps > 0 || (laps == 0 && cursor.count > before.count);
}

// Whether both name the same RMB.
bool meet(const llc::RTokenSet& one, const llc::RTokenSet& other) {
    return std::ranges::any_of(one, [&](const auto& entry) {
        const auto there = other.find(entry.first);
        return there != other.end() && there->second.rkey == entry.second.rkey;
    });
}

}  // namespace

bool GroupDriver::open(AlertToken token) {
    const std::lock_guard lock(mutex_);
    // C1: its inbox exists before the peer learns of the token.
    return receivers_.emplace(token, std::make_unique<Receiver>()).second;
}

void GroupDriver::await_message(AlertToken token, FirstMessage first_message) {
    bool aborts = false;
    {
        const std::lock_guard lock(mutex_);
        const auto it = receivers_.find(token);
        if (it == receivers_.end()) {
            return;
        }
        if (it->second->inbox.empty() && !it->second->lost) {
            it->second->first_message = std::move(first_message);
            return;
        }
        aborts = it->second->lost || is_stillborn(it->second->inbox.latest());
    }
    first_message(aborts);
}

void GroupDriver::forget(AlertToken token) {
    const std::lock_guard lock(mutex_);
    receivers_.erase(token);
}

void GroupDriver::linger(AlertToken token, Element rmbe) {
    const std::lock_guard lock(mutex_);
    const auto it = receivers_.find(token);
    if (it == receivers_.end()) {
        return;
    }
    it->second->task = nullptr;
    it->second->mover = nullptr;
    // C2. If a message was lost, what the peer wrote with it may still be under way over the link that the peer left.
    if ((it->second->is_done && !it->second->lost) || it->second->is_reassigned || closed_) {
        receivers_.erase(it);
    } else {
        it->second->lingering.emplace(std::move(rmbe));
    }
}

void GroupDriver::rmbe_reassigned(AlertToken token) {
    const std::lock_guard lock(mutex_);
    reassigned_.push_back(token);
}

void GroupDriver::use(std::uint8_t number, const std::shared_ptr<LinkDriver>& link) {
    const std::lock_guard lock(mutex_);
    if (!closed_ && !link->is_lost()) {
        links_[number] = link;
        receiving_[number] = link;
    }
}

void GroupDriver::retire(std::uint8_t number) {
    const std::lock_guard lock(mutex_);
    links_.erase(number);
    retired_.push_back(number);
}

std::uint8_t GroupDriver::link_of(AlertToken token) const {
    const std::lock_guard lock(mutex_);
    const auto it = receivers_.find(token);
    return it == receivers_.end() ? std::uint8_t{0} : it->second->link.load(std::memory_order_relaxed);
}

void GroupDriver::close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    links_.clear();
    for (auto& [token, receiver] : receivers_) {
        receiver->lingering.reset();
    }
}

void GroupDriver::note_rmb(const llc::RTokenSet& rmb) {
    const std::lock_guard lock(mutex_);
    const auto it = std::ranges::find_if(rmbs_, [&](const llc::RTokenSet& known) { return meet(rmb, known); });
    if (it != rmbs_.end()) {
        *it = rmb;
    } else {
        rmbs_.push_back(rmb);
    }
}

void GroupDriver::forget_rmb(const llc::RTokenSet& rmb) {
    const std::lock_guard lock(mutex_);
    std::erase_if(rmbs_, [&](const llc::RTokenSet& known) { return meet(rmb, known); });
}

std::optional<llc::RToken> GroupDriver::rtoken(std::uint8_t known, RKey rkey, std::uint8_t wanted) const {
    const std::lock_guard lock(mutex_);
    for (const llc::RTokenSet& rmb : rmbs_) {
        const auto from = rmb.find(known), to = rmb.find(wanted);
        if (from != rmb.end() && from->second.rkey == rkey && to != rmb.end()) {
            return to->second;
        }
    }
    return std::nullopt;
}

GroupDriver::Receiver* GroupDriver::attach(AlertToken token, Task& task, Mover& mover, std::uint32_t base) {
    const std::lock_guard lock(mutex_);
    const auto it = receivers_.find(token);
    if (it == receivers_.end()) {
        return nullptr;
    }
    it->second->task = &task;
    it->second->mover = &mover;
    it->second->base = base;
    return it->second.get();
}

std::shared_ptr<LinkDriver> GroupDriver::pick(std::uint8_t preferred) const {
    const std::lock_guard lock(mutex_);
    if (const auto it = links_.find(preferred); it != links_.end()) {
        if (auto link = it->second.lock(); link && !link->is_lost()) {
            return link;
        }
    }
    for (const auto& [number, weak] : links_) {
        if (auto link = weak.lock(); link && !link->is_lost()) {
            return link;
        }
    }
    return nullptr;
}

void GroupDriver::drain_others(const LinkDriver& than) {
    std::vector<std::shared_ptr<LinkDriver>> others;
    {
        const std::lock_guard lock(mutex_);
        for (const auto& [number, weak] : receiving_) {
            if (auto link = weak.lock(); link && link.get() != &than) {
                others.push_back(std::move(link));
            }
        }
    }
    for (const auto& link : others) {
        link->drain();
    }
}

// A connection that is closing is moved by Linux without a word: what it had written over the link before may be lost,
// and is not sent again. (The last message of a connection of ours may come with a gap, too; its producer cursor is one
// that was published.)
bool GroupDriver::has_gap(const Receiver& receiver, const cdc::Message& message, const LinkDriver& from) {
    const cdc::Message& latest = receiver.inbox.latest();  // the first message has number 1
    const cdc::Cursor told = receiver.inbox.empty() ? cdc::Cursor{.count = receiver.base} : latest.producer;
    const auto ahead = static_cast<std::int16_t>(static_cast<std::uint16_t>(message.sequence - latest.sequence));
    return receiver.over != from.number() && receiver.validated != from.number() && ahead > 1 &&
           is_beyond(message.producer, told);
}

bool GroupDriver::may_miss_some(const cdc::Message& message, const LinkDriver& from) {
    const std::lock_guard lock(mutex_);
    const auto it = receivers_.find(message.token);
    return it != receivers_.end() && !it->second->lost && has_gap(*it->second, message, from);
}

GroupDriver::CdcResult GroupDriver::on_cdc(const cdc::Message& message, LinkDriver& from, Poller& poller) {
    const bool moved = (message.flags & cdc::kFailoverValidation) != 0;
    if (moved || may_miss_some(message, from)) {
        drain_others(from);  // C4
    }
    Task* task = nullptr;
    flow::CdcInbox::Taken taken{};
    FirstMessage first_message;
    std::optional<Element> freed;
    {
        const std::lock_guard lock(mutex_);
        const auto it = receivers_.find(message.token);
        if (it == receivers_.end()) {
            return CdcResult::kUnknown;  // the connection is gone, or there never was one
        }
        Receiver& receiver = *it->second;
        task = receiver.task;
        const bool lost = !moved && (receiver.lost || has_gap(receiver, message, from));
        taken = lost ? flow::CdcInbox::Taken::kLost : receiver.inbox.take(message);
        receiver.lost |= taken == flow::CdcInbox::Taken::kLost;
        receiver.is_done |= !moved && (message.state & (cdc::kConnectionClosed | cdc::kAbnormalClose)) != 0;
        if (moved) {
            receiver.validated = from.number();
        }
        if (taken == flow::CdcInbox::Taken::kYes) {
            if (receiver.validated == from.number()) {
                receiver.validated = 0;  // the move is complete; other messages are late ones of links left before
            }
            receiver.over = from.number();
        }
        if (taken == flow::CdcInbox::Taken::kYes || taken == flow::CdcInbox::Taken::kLost) {
            first_message = std::exchange(receiver.first_message, nullptr);
        }
        if (receiver.lingering && receiver.is_done && !receiver.lost) {  // C2
            freed = std::move(receiver.lingering);
            receivers_.erase(it);
        }
    }
    if (first_message) {
        first_message(taken == flow::CdcInbox::Taken::kLost || is_stillborn(message));
    }
    if (taken == flow::CdcInbox::Taken::kStale) {
        return moved ? CdcResult::kTaken : CdcResult::kStale;
    }
    if (task != nullptr) {
        if (taken == flow::CdcInbox::Taken::kLost) {
            task->abort(Reason::kDataLost);
        }
        poller.ready(*task);
    }
    return CdcResult::kTaken;
}

void GroupDriver::destroyed(unsigned broken) {
    const std::lock_guard lock(mutex_);
    broken_.erase(broken);
    oldest_broken_.store(broken_.empty() ? kNoneBroken : *broken_.begin(), std::memory_order_release);
    broken_link_gone_ = true;
}

void GroupDriver::say_later(std::vector<std::uint8_t> message) {
    const std::lock_guard lock(mutex_);
    later_.push_back({last_broken(), std::move(message)});
    broken_link_gone_ |= !has_broken(last_broken());
}

// C5: runs the connections and sends the messages that may have been held back. Connections run in the order of their
// tokens, as in move_from().
void GroupDriver::go_on(Poller& poller) {
    std::map<AlertToken, Task*> tasks;
    std::vector<std::vector<std::uint8_t>> messages;
    {
        const std::lock_guard lock(mutex_);
        for (const auto& [token, receiver] : receivers_) {
            if (receiver->task != nullptr) {
                tasks.emplace(token, receiver->task);
            }
        }
        for (Later& later : later_) {
            if (!has_broken(later.up_to)) {
                messages.push_back(std::move(later.message));
            }
        }
        std::erase_if(later_, [this](const Later& later) { return !has_broken(later.up_to); });
    }
    for (const auto& [token, task] : tasks) {
        poller.ready(*task);
    }
    const auto link = pick(0);
    if (link && !messages.empty()) {
        for (auto& message : messages) {
            (void)link->send_soon(std::move(message));
        }
        poller.ready(*link);
    }
}

void GroupDriver::settle(Poller& poller) {
    std::vector<Task*> tasks;
    std::vector<std::uint8_t> retired;
    bool gone = false;
    {
        const std::lock_guard lock(mutex_);
        gone = std::exchange(broken_link_gone_, false);
        for (const AlertToken token : std::exchange(reassigned_, {})) {
            const auto it = receivers_.find(token);
            if (it == receivers_.end()) {
                continue;
            }
            it->second->is_reassigned = true;
            if (it->second->lingering) {  // C2
                receivers_.erase(it);
            } else if (it->second->task != nullptr) {
                tasks.push_back(it->second->task);
            }
        }
        retired = std::exchange(retired_, {});
    }
    for (Task* task : tasks) {
        task->abort(Reason::kRmbeTakenAgain);
        poller.ready(*task);
    }
    for (const std::uint8_t number : retired) {
        move_from(number, poller);
    }
    if (gone) {
        go_on(poller);
    }
}

// C3. Connections move in the order of their tokens, so that a simulated run can be repeated.
void GroupDriver::move_from(std::uint8_t number, Poller& poller) {
    struct Here {
        Mover* mover;
        Task* task;
        bool counts;  // towards not_moved_, if it cannot move; false: its peer has left
    };
    std::map<AlertToken, Here> here;
    {
        const std::lock_guard lock(mutex_);
        for (auto& [token, receiver] : receivers_) {
            if (receiver->mover != nullptr && receiver->link == number) {
                here.emplace(token, Here{receiver->mover, receiver->task, !receiver->is_reassigned});
            }
        }
    }
    for (const auto& [token, who] : here) {
        const auto [mover, task, counts] = who;
        if (!mover->move()) {
            if (counts && pick(number) != nullptr) {
                not_moved_.fetch_add(1, std::memory_order_relaxed);
            }
            task->abort(Reason::kLinkDown);
        }
        poller.ready(*task);
    }
}

unsigned GroupDriver::lost(const LinkDriver& link, Poller& poller) {
    unsigned broken_as = 0;
    bool has_newer = false;
    {
        const std::lock_guard lock(mutex_);
        const auto known = receiving_.find(link.number());
        if (known != receiving_.end()) {
            broken_as = ++last_broken_;
            broken_.insert(broken_as);
            oldest_broken_.store(*broken_.begin(), std::memory_order_release);
            const auto present = known->second.lock();
            has_newer = present && present.get() != &link;
        }
        if (!has_newer) {
            links_.erase(link.number());
            receiving_.erase(link.number());
        }
    }
    if (!has_newer) {
        move_from(link.number(), poller);
    }
    return broken_as;
}

}  // namespace smc::smcr
