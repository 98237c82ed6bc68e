// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Whether a DMB is still what it was mapped for. Where machines share memory, the others give away what a machine has
// that stands still for long enough; so whoever wakes up again looks before he reads or writes.
#pragma once

#include <atomic>
#include <cstdint>

namespace smc::smcd {

class Claim {
 public:
    // Nobody else can have it.
    Claim() = default;
    // As long as both words have these values: whose the memory is, and who has the peer slot of this machine.
    Claim(std::uint64_t* owner, std::uint64_t is, std::uint64_t* peer, std::uint64_t life)
        : owner_(owner), is_(is), peer_(peer), life_(life) {}

    [[nodiscard]] bool stands() const { return owner_ == nullptr || (load(*owner_) == is_ && load(*peer_) == life_); }

 private:
    static std::uint64_t load(std::uint64_t& word) {
        return std::atomic_ref<std::uint64_t>(word).load(std::memory_order_acquire);
    }
    std::uint64_t* owner_ = nullptr;
    std::uint64_t is_ = 0;
    std::uint64_t* peer_ = nullptr;
    std::uint64_t life_ = 0;
};

}  // namespace smc::smcd
