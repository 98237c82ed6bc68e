// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An owned mmap().
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "os/result.h"

namespace smc {

class Mapping {
 public:
    // Maps `bytes` of a file, shared with all other processes that map it.
    static Result<Mapping> shared(int fd, std::size_t bytes, off_t from = 0) {
        return map(bytes, MAP_SHARED, fd, from);
    }
    // Zeroed memory of this process, page-aligned.
    static Result<Mapping> anonymous(std::size_t bytes) { return map(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1); }

    Mapping() = default;
    Mapping(Mapping&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
    Mapping& operator=(Mapping&& other) noexcept {
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping() {
        if (!bytes_.empty()) {
            ::munmap(bytes_.data(), bytes_.size());
        }
    }

    [[nodiscard]] std::span<std::uint8_t> bytes() const { return bytes_; }

 private:
    static Result<Mapping> map(std::size_t bytes, int flags, int fd, off_t from = 0) {
        void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, from);
        if (memory == MAP_FAILED) {
            return last_error("mapping " + std::to_string(bytes) + " bytes");
        }
        Mapping mapping;
        mapping.bytes_ = {static_cast<std::uint8_t*>(memory), bytes};
        return mapping;
    }

    std::span<std::uint8_t> bytes_;
};

}  // namespace smc
