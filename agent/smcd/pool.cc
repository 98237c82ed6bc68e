// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/smcd/pool.h"

#include <algorithm>
#include <chrono>

namespace smc::smcd {

namespace {

constexpr std::size_t kMost = 256;  // own DMBs, and likewise peers'; each holds a descriptor
// How long an own DMB is kept. It must be the same at both ends, so it is no key of the configuration.
constexpr auto kIdle = std::chrono::seconds(2);
// How long a peer's DMB is kept: longer than its owner keeps it, so that the owner drops it first.
constexpr auto kPeersIdle = 2 * kIdle;
// How long a peer's DMB is kept that its owner has taken, but for which no connection has come.
constexpr auto kForgotten = std::chrono::seconds(120);

}  // namespace

Pool::~Pool() {
    for (const Own& own : own_) {
        release(own);
    }
}

void Pool::release(const Own& own) {
    own.dmb.registered.dmb->lease().end();
    own.dmb.fabric->deregister(own.dmb.registered.token);
}

// Drops the oldest own DMB, or else a peer's DMB that its owner has not taken. False: there is none.
bool Pool::drop_one() {
    if (!own_.empty()) {
        release(own_.front());
        own_.pop_front();
        return true;
    }
    const auto it = std::ranges::find_if(theirs_, [](const auto& entry) {
        const Lease& lease = entry.second.dmb.dmb->lease();
        return lease.gone() || lease.let_go();
    });
    if (it == theirs_.end()) {
        return false;
    }
    theirs_.erase(it);
    return true;
}

Memory::Share Pool::share(std::uint64_t bytes) {
    Memory::Share share = memory_.take(bytes);
    while (!share && drop_one()) {
        share = memory_.take(bytes);
    }
    return share;
}

std::optional<OwnDmb> Pool::take(const Peer& peer, std::uint32_t bytes) {
    const auto it = std::ranges::find_if(own_, [&](const Own& own) {
        return own.peer == peer && own.dmb.registered.dmb->bytes() == bytes && own.dmb.registered.dmb->lease().take();
    });
    if (it == own_.end()) {
        return std::nullopt;
    }
    OwnDmb own = std::move(it->dmb);
    own_.erase(it);
    own.registered.dmb->begin_again();
    return own;
}

void Pool::keep(const Peer& peer, OwnDmb own, TimePoint now) {
    if (own.registered.dmb->lease().gone()) {
        own.fabric->deregister(own.registered.token);
        return;
    }
    if (own_.size() >= kMost) {
        release(own_.front());
        own_.pop_front();
    }
    own_.push_back({peer, std::move(own), now});
}

std::optional<PeersDmb> Pool::find(const Peer& peer, DmbToken token, std::uint32_t bytes) {
    const auto it = theirs_.find({peer, token});
    if (it == theirs_.end() || !it->second.dmb.dmb->lease().used() || it->second.dmb.dmb->bytes() != bytes) {
        return std::nullopt;
    }
    PeersDmb theirs = std::move(it->second.dmb);
    theirs_.erase(it);
    return theirs;
}

void Pool::park(const Peer& peer, DmbToken token, PeersDmb theirs, TimePoint now) {
    if (theirs_.size() < kMost && theirs.dmb->lease().park()) {
        theirs_.insert_or_assign({peer, token}, Theirs{std::move(theirs), now, now + kForgotten});
    }
}

void Pool::sweep(TimePoint now) {
    while (memory_.taken() > memory_.limit() && drop_one()) {
    }
    while (!own_.empty() && now - own_.front().since >= kIdle) {
        release(own_.front());
        own_.pop_front();
    }
    std::erase_if(theirs_, [&](const auto& entry) {
        const Lease& lease = entry.second.dmb.dmb->lease();
        const auto idle = now - entry.second.since;
        return lease.gone() || now >= entry.second.until || (idle >= kPeersIdle && lease.let_go());
    });
}

void Pool::forget(const Peer& peer, TimePoint now) {
    for (const Own& own : own_) {
        if (own.peer == peer) {
            release(own);
        }
    }
    std::erase_if(own_, [&](const Own& own) { return own.peer == peer; });
    std::erase_if(theirs_, [&](const auto& entry) {
        const Lease& lease = entry.second.dmb.dmb->lease();
        return entry.first.first == peer && (lease.gone() || lease.let_go());
    });
    for (auto& [key, theirs] : theirs_) {
        if (key.first == peer) {
            theirs.until = std::min(theirs.until, now + kPeersIdle);
        }
    }
}

}  // namespace smc::smcd
