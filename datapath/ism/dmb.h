// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A Direct Memory Buffer of the `local` ISM provider: a sealed memfd and an eventfd.
//
//   page 0            provider page: the doorbell word (ours, not part of SMC)
//   page 1 ...        the DMB: 32 bytes of CDC written by the peer, then the data ring (smc/cdc.h)
//
// Invariants:
//   D1  Only the peer writes into the DMB; the owner writes only the doorbell word.
//   D2  The memfd is sealed against every change of size before it leaves the owner, and the one who
//       attaches checks the seals: nobody can make the other side fault.
//   D3  Everything read from it is validated before use: it is memory that another process writes.
//
// Doorbell: the owner arms it before it sleeps and looks at the CDC again; the peer rings (one eventfd
// write) only if it finds it armed, after it has stored its cursors. Both use sequentially consistent
// operations, so one of the two always sees the other.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "os/result.h"
#include "os/unique_fd.h"
#include "smc/wire/cdc.h"

namespace smc::ism {

// An owned mmap() of shared memory.
class Mapping {
 public:
    static Result<Mapping> map(int fd, std::size_t bytes);
    Mapping() = default;
    Mapping(Mapping&& other) noexcept;
    Mapping& operator=(Mapping&& other) noexcept;
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping();

    [[nodiscard]] std::uint8_t* data() const { return data_; }

 private:
    std::uint8_t* data_ = nullptr;
    std::size_t bytes_ = 0;
};

// Either end's view of one DMB. Movable, owns its mapping and the eventfd.
class Dmb {
 public:
    // A new DMB of `bytes` (a size that compress_size() can express, CDC included).
    static Result<Dmb> create(std::uint32_t bytes);
    // A peer's DMB from its descriptors; refuses memory that is not sealed or shorter than `bytes`.
    static Result<Dmb> attach(UniqueFd memory, UniqueFd doorbell, std::uint32_t bytes);

    [[nodiscard]] std::uint32_t bytes() const { return bytes_; }
    [[nodiscard]] int memory_fd() const { return memory_.get(); }
    [[nodiscard]] int doorbell_fd() const { return doorbell_.get(); }
    // Once the peer has its copy, the owner needs the mapping only.
    void close_memory_fd() { memory_.reset(); }

    // The data ring behind the CDC.
    [[nodiscard]] std::span<std::uint8_t> ring() const { return {dmb() + cdc::kSmcdBytes, bytes_ - cdc::kSmcdBytes}; }
    [[nodiscard]] std::uint64_t load_producer() const { return word(cdc::kProducerOffset).load(); }
    [[nodiscard]] std::uint64_t load_consumer() const { return word(cdc::kConsumerOffset).load(); }
    void store_producer(std::uint64_t value) const { word(cdc::kProducerOffset).store(value); }
    void store_consumer(std::uint64_t value) const { word(cdc::kConsumerOffset).store(value); }

    // Owner's side of the doorbell.
    void arm() const { doorbell().store(1); }
    // Peer's side: wakes the owner if it sleeps.
    void ring_doorbell() const;

 private:
    static constexpr std::size_t kProviderBytes = 4096;

    [[nodiscard]] std::uint8_t* dmb() const { return mapping_.data() + kProviderBytes; }
    [[nodiscard]] std::atomic_ref<std::uint64_t> word(std::uint32_t offset) const {
        return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(dmb() + offset));
    }
    [[nodiscard]] std::atomic_ref<std::uint32_t> doorbell() const {
        return std::atomic_ref<std::uint32_t>(*reinterpret_cast<std::uint32_t*>(mapping_.data()));
    }

    Mapping mapping_;
    UniqueFd memory_;
    UniqueFd doorbell_;
    std::uint32_t bytes_ = 0;
};

}  // namespace smc::ism
