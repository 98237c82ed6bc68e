// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Limits the memory of SMC-D: the own DMBs, and the peers' DMBs that are attached, because a page is charged to the
// process that touches it first. Control thread only.
#pragma once

#include <cstdint>
#include <utility>

namespace smc::smcd {

class Memory {
 public:
    explicit Memory(std::uint64_t limit) : limit_(limit) {}
    ~Memory() = default;
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    [[nodiscard]] std::uint64_t limit() const { return limit_; }
    [[nodiscard]] std::uint64_t taken() const { return taken_; }
    // Shares that were taken stay, even beyond the new limit.
    void set_limit(std::uint64_t limit) { limit_ = limit; }

    // Holds `bytes` of the memory for as long as this object lives. `memory` outlives it.
    class Share {
     public:
        Share() = default;
        Share(Share&& other) noexcept
            : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
        Share& operator=(Share&& other) noexcept {
            std::swap(memory_, other.memory_);
            std::swap(bytes_, other.bytes_);
            return *this;
        }
        Share(const Share&) = delete;
        Share& operator=(const Share&) = delete;
        ~Share() {
            if (memory_ != nullptr) {
                memory_->taken_ -= bytes_;
            }
        }
        explicit operator bool() const { return memory_ != nullptr; }
        [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
        // Gives back what goes beyond `bytes`.
        void shrink(std::uint64_t bytes) {
            if (memory_ != nullptr && bytes < bytes_) {
                memory_->taken_ -= bytes_ - bytes;
                bytes_ = bytes;
            }
        }

     private:
        friend class Memory;
        Share(Memory& memory, std::uint64_t bytes) : memory_(&memory), bytes_(bytes) { memory.taken_ += bytes; }
        Memory* memory_ = nullptr;
        std::uint64_t bytes_ = 0;
    };
    // An empty share: not enough is left.
    [[nodiscard]] Share take(std::uint64_t bytes) {
        return limit_ >= taken_ && limit_ - taken_ >= bytes ? Share(*this, bytes) : Share();
    }

 private:
    std::uint64_t limit_;
    std::uint64_t taken_ = 0;
};

}  // namespace smc::smcd
