// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "link.h"

#include <sys/epoll.h>

#include <algorithm>

namespace smc::sim {

namespace {

// How long a sender retries before it gives up on a peer that does not acknowledge.
constexpr auto kRetries = std::chrono::milliseconds(500);
// Packets of a broken queue pair arrive within this time, or not at all.
constexpr auto kLateTime = std::chrono::milliseconds(300);
// Messages that one poll() takes.
constexpr int kPerPoll = 16;

}  // namespace

std::span<std::uint8_t> SimMemory::range(VirtualAddress from, std::size_t bytes) {
    const auto begin = static_cast<std::uint64_t>(from), base = static_cast<std::uint64_t>(address_);
    if (begin < base || bytes > bytes_.size() || begin - base > bytes_.size() - bytes) {
        return {};
    }
    return std::span(bytes_).subspan(begin - base, bytes);
}

SimLink::SimLink(World& world, const Network& network, Port& port, std::uint32_t capacity)
    : world_(world),
      network_(network),
      port_(port),
      capacity_(capacity),
      end_{.gid = port.gid, .mac = {}, .qpn = Qpn{port.next_number++}},
      descriptor_(world, [this] { return level(); }) {
    port_.links.emplace(end_.qpn, this);
}

SimLink::~SimLink() {
    port_.links.erase(end_.qpn);
}

std::uint32_t SimLink::level() const {
    const bool completed = wants_completions_ && done_ > retired_;
    return (asked_ && (!messages_.empty() || completed)) || wants_poll() ? std::uint32_t{EPOLLIN} : 0U;
}

SimLink* SimLink::peer() const {
    SimLink* there = cut_ || port_.down ? nullptr : other_end();
    return there == nullptr || there->cut_ || there->port_.down ? nullptr : there;
}

SimLink* SimLink::other_end() const {
    const auto port = peer_ ? network_.find(peer_->gid.normalised()) : network_.end();
    if (port == network_.end()) {
        return nullptr;
    }
    const auto link = port->second->links.find(peer_->qpn);
    return link == port->second->links.end() ? nullptr : link->second;
}

Result<void> SimLink::connect(const QpEnd& peer) {
    peer_ = peer;
    if (world_.strikes(Mishap::kLinkCut)) {
        world_.after(world_.some_time(std::chrono::seconds(5)), [weak = std::weak_ptr(self_)] {
            if (const auto self = weak.lock()) {
                (*self)->cut();
            }
        });
    }
    return {};
}

SimLink::Posted SimLink::write(std::span<const std::uint8_t> from, std::uint32_t lkey, RKey rkey, VirtualAddress to) {
    if (failure_ || !peer_) {
        return Posted::kBroken;
    }
    const auto local = port_.local.find(lkey);
    world_.require(local != port_.local.end() && !local->second.expired(), "an lkey of another port, or of none");
    if (room() < 2) {
        return Posted::kFull;  // Q4
    }
    posted_++;
    writes_.push_back({from, rkey, to});
    return Posted::kYes;
}

SimLink::Posted SimLink::send(wire::Bytes message) {
    if (failure_ || !peer_) {
        return Posted::kBroken;
    }
    if (room() == 0) {
        return Posted::kFull;
    }
    posted_++;
    in_flight_.push_back({std::exchange(writes_, {}), {message.begin(), message.end()}, posted_});
    Delay delay = world_.network();
    if (world_.strikes(Mishap::kLinkSlow)) {
        delay += world_.some_time(std::chrono::seconds(4));
    }
    last_arrival_ = std::max(last_arrival_, world_.now() + delay);  // Q1 and Q2
    world_.at(last_arrival_, [weak = std::weak_ptr(self_)] {
        if (const auto self = weak.lock()) {
            (*self)->arrive();
        }
    });
    return Posted::kYes;
}

bool SimLink::reaches_peer() const {
    const SimLink* there = peer();
    return there != nullptr && !there->failure_ && there->peer_;
}

// Runs at the sender's side, because the sender's memory is read now.
void SimLink::arrive() {
    if (failure_) {
        return;
    }
    Request request = std::move(in_flight_.front());
    in_flight_.pop_front();
    if (!unacknowledged_.empty() || !reaches_peer()) {
        unacknowledged_.push_back(std::move(request));  // Q1: later requests wait behind it
        if (unacknowledged_.size() == 1) {
            world_.after(kRetries, [weak = std::weak_ptr(self_)] {
                if (const auto self = weak.lock()) {
                    (*self)->retry();
                }
            });
        }
        return;
    }
    deliver(std::move(request));
}

// The other end may be connected by now, or the port may be back.
void SimLink::retry() {
    if (!reaches_peer()) {
        return fail("the peer does not acknowledge");
    }
    for (Request& request : std::exchange(unacknowledged_, {})) {
        if (!failure_ && reaches_peer()) {
            deliver(std::move(request));
        }
    }
}

void SimLink::deliver(Request request) {
    SimLink* there = peer();
    if (world_.strikes(Mishap::kAckedAndLost)) {
        // The case that failover validation is for (RFC 7609 section 4.6.1).
        acknowledged(request.sequence);
        has_lost_ = true;
        cut();
        return;
    }
    for (const Write& write : request.writes) {
        there->put(write.rkey, write.to, write.from);
    }
    there->messages_.push_back(std::move(request.message));
    there->descriptor_.changed();
    world_.after(world_.network(), [weak = std::weak_ptr(self_), sequence = request.sequence] {
        if (const auto self = weak.lock()) {
            (*self)->acknowledged(sequence);
        }
    });
}

// The peer writes into memory of this end.
void SimLink::put(RKey rkey, VirtualAddress to, std::span<const std::uint8_t> bytes) {
    const auto it = port_.memory.find(rkey);
    const auto memory = it == port_.memory.end() ? nullptr : it->second.lock();
    const auto there = memory ? memory->range(to, bytes.size()) : std::span<std::uint8_t>{};
    if (there.empty()) {  // V1: the memory was freed while a peer could still write to it
        world_.violated("RDMA write of " + std::to_string(bytes.size()) + " bytes to " + text(to) + " with " +
                        text(rkey) + ", where no memory is registered");
    }
    std::ranges::copy(bytes, there.begin());
}

void SimLink::acknowledged(std::uint64_t sequence) {
    done_ = std::max(done_, sequence);
    descriptor_.changed();
}

void SimLink::fail(std::string why) {
    if (!failure_) {
        failure_ = std::move(why);
        descriptor_.changed();
        if (!has_lost_ && world_.strikes(Mishap::kLateWrites)) {
            deliver_late();
        }
    }
}

// Lets all requests arrive later that the peer did not get: they are in a queue of this host, or are being
// retransmitted.
void SimLink::deliver_late() {
    TimePoint when = world_.now() + world_.below(100) * kLateTime / 100;
    for (const std::deque<Request>* requests : {&unacknowledged_, &in_flight_}) {
        for (const Request& request : *requests) {
            LateRequest copy{{}, request.message};
            for (const Write& write : request.writes) {
                copy.writes.push_back({{write.from.begin(), write.from.end()}, write.rkey, write.to});
            }
            when += world_.network();
            world_.at(when, [weak = std::weak_ptr(self_), copy = std::move(copy)] {
                if (const auto self = weak.lock()) {
                    (*self)->arrive_late(copy);
                }
            });
        }
    }
}

// If the peer's queue pair works, it takes the packets: they are the next ones that it expects.
void SimLink::arrive_late(const LateRequest& request) {
    SimLink* there = other_end();
    if (there == nullptr || there->failure_ || !there->peer_) {
        return;
    }
    world_.tell("a late request of " + text(end_.qpn) + " arrives: " + std::to_string(request.writes.size()) +
                " writes");
    for (const LateRequest::Write& write : request.writes) {
        there->put(write.rkey, write.to, write.bytes);
    }
    there->messages_.push_back(request.message);
    there->descriptor_.changed();
}

bool SimLink::poll(smcr::LinkHandler& handler, bool readable, bool asks) {
    asked_ = asks || (asked_ && !readable);
    retired_ = done_;
    for (int i = 0; i < kPerPoll && !messages_.empty(); i++) {
        const auto message = std::move(messages_.front());
        messages_.pop_front();
        handler.on_message(message);
    }
    if (failure_ && !broken_ && messages_.empty()) {
        broken_ = true;
        handler.on_broken(*failure_);  // Q3
    }
    return !broken_ && (!messages_.empty() || failure_);
}

}  // namespace smc::sim
