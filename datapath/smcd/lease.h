// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Decides whether a DMB whose connection is over may serve another connection of the same two peers. Owner and peer
// agree on it by a word that both have mapped, without a message:
//
//   kUsed    a connection uses it; the peer may write         -> kParked, by the peer
//   kParked  the peer keeps it mapped and writes nothing      -> kUsed, by the owner, which names its token again
//                                                             -> kGone, by the peer
//   kGone    the DMB is never used again. The owner may set this at any time.
//
// D4  Only the owner changes kParked to kUsed, and it does so before it names the token again. So a DMB that the peer
//     still has mapped under a token that it receives belongs to the new connection alone, and no write of the previous
//     connection can be late.
//
// D5  A DMB whose claim (claim.h) does not stand any more counts as gone; its word belongs to another owner.
//
// A peer that breaks these rules harms its own connections only, because a DMB is never given to another peer.
#pragma once

#include <atomic>
#include <cstdint>

#include "datapath/smcd/claim.h"

namespace smc::smcd {

class Lease {
 public:
    // `word`: zero in a new DMB, aligned to 4, lives as long as the DMB; nullptr: the provider has none, and every DMB
    // serves one connection.
    explicit Lease(std::uint32_t* word = nullptr, const Claim& claim = {}) : word_(word), claim_(claim) {}

    [[nodiscard]] bool is_valid() const { return claim_.is_valid(); }

    // Peer's side. False: the DMB cannot be used again.
    [[nodiscard]] bool park() const { return change(kUsed, kParked); }
    // Owner's side. False: the DMB is not parked.
    [[nodiscard]] bool take() const { return change(kParked, kUsed); }
    // Peer's side. False: the DMB is not parked any more, because its owner has taken it.
    [[nodiscard]] bool let_go() const { return change(kParked, kGone); }
    // Owner's side.
    void end() const {
        if (word_ != nullptr && is_valid()) {
            word().store(kGone);
        }
    }
    [[nodiscard]] bool used() const { return word_ != nullptr && is_valid() && word().load() == kUsed; }
    [[nodiscard]] bool gone() const { return word_ == nullptr || !is_valid() || word().load() == kGone; }

 private:
    enum State : std::uint32_t { kUsed, kParked, kGone };
    [[nodiscard]] std::atomic_ref<std::uint32_t> word() const { return std::atomic_ref<std::uint32_t>(*word_); }
    [[nodiscard]] bool change(std::uint32_t from, std::uint32_t to) const {
        return word_ != nullptr && is_valid() && word().compare_exchange_strong(from, to);
    }
    std::uint32_t* word_;
    Claim claim_;
};

}  // namespace smc::smcd
