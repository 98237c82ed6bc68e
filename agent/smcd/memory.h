// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How much memory SMC-D may take: of the own DMBs, and of the peers' that are attached, because who touches a page
// first pays for it. Control thread only.
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
    // What is taken beyond it stays.
    void set_limit(std::uint64_t limit) { limit_ = limit; }

    // So much of it, until this goes. `memory` lives longer.
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

     private:
        friend class Memory;
        Share(Memory& memory, std::uint64_t bytes) : memory_(&memory), bytes_(bytes) { memory.taken_ += bytes; }
        Memory* memory_ = nullptr;
        std::uint64_t bytes_ = 0;
    };
    // False: there is not so much left.
    [[nodiscard]] Share take(std::uint64_t bytes) {
        return limit_ >= taken_ && limit_ - taken_ >= bytes ? Share(*this, bytes) : Share();
    }

 private:
    std::uint64_t limit_;
    std::uint64_t taken_ = 0;
};

}  // namespace smc::smcd
