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
    // A claim that stands while the word `owner` (the owner of the memory) equals `owner_value`, and the word `slot`
    // (the machine that has this machine's slot) equals `slot_value`.
    Claim(std::uint64_t* owner, std::uint64_t owner_value, std::uint64_t* slot, std::uint64_t slot_value)
        : owner_(owner), owner_value_(owner_value), slot_(slot), slot_value_(slot_value) {}

    [[nodiscard]] bool is_valid() const {
        return owner_ == nullptr || (load(*owner_) == owner_value_ && load(*slot_) == slot_value_);
    }

 private:
    static std::uint64_t load(std::uint64_t& word) {
        return std::atomic_ref<std::uint64_t>(word).load(std::memory_order_acquire);
    }
    std::uint64_t* owner_ = nullptr;
    std::uint64_t owner_value_ = 0;
    std::uint64_t* slot_ = nullptr;
    std::uint64_t slot_value_ = 0;
};

}  // namespace smc::smcd
