// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Tells whether the memory of a DMB still belongs to that DMB. Where machines share memory, a machine that stands still
// for long enough loses its memory to the others, so each side checks the claim before it reads or writes.
#pragma once

#include <atomic>
#include <cstdint>

namespace smc::smcd {

class Claim {
 public:
    // A claim that always stands: the memory never changes its owner.
    Claim() = default;
    // A claim that stands while `owner`, which says whose the memory is, has the value `is`, and `peer`, which says who
    // has the slot of this machine, has the value `life`.
    Claim(std::uint64_t* owner, std::uint64_t is, std::uint64_t* peer, std::uint64_t life)
        : owner_(owner), is_(is), peer_(peer), life_(life) {}

    [[nodiscard]] bool is_valid() const { return owner_ == nullptr || (load(*owner_) == is_ && load(*peer_) == life_); }

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
