// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Either end's view of a Direct Memory Buffer: 32 bytes of CDC that the peer writes, then the data ring
// (smc/wire/cdc.h). The ISM provider (fabric.h) decides which memory it is and how its owner is woken.
//
// Invariants:
//   D1  Only the peer writes into the DMB; its owner reads, while there is a connection.
//   D2  The provider ensures that the memory cannot be truncated while it is mapped, so neither side can make the other
//       one fault.
//   D3  Everything read from it is validated before use: it is memory that another process writes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "datapath/smcd/lease.h"
#include "smc/time.h"
#include "smc/wire/cdc.h"

namespace smc::smcd {

// Port: how the owner of a DMB learns that its peer has published something.
//
// Before the owner sleeps, it arms, and then looks at the CDC once more; the peer stores its cursors, and then rings.
// These accesses must be sequentially consistent, so that at least one side sees what the other one has stored. Ringing
// never blocks.
class Doorbell {
 public:
    virtual ~Doorbell() = default;
    // Owner's side: a descriptor of which edge-triggered epoll reports each ring, provided that heard() is called
    // after each report. It may report more than that. The doorbell owns it.
    [[nodiscard]] virtual int fd() const = 0;
    virtual void arm() = 0;
    virtual void heard() = 0;
    // Peer's side: wakes the owner if it sleeps.
    virtual void ring() = 0;

    // Owner's side: the time of the first ring since forget(); kNever: there was none, or the peer's agent notes no
    // time (it is of an earlier version, or of another fabric). The peer notes it before it looks whether the owner is
    // armed.
    [[nodiscard]] virtual TimePoint noted() const { return kNever; }
    virtual void forget() {}
    // Withdraws arm().
    virtual void disarm() {}
};

class Dmb {
 public:
    // `memory` holds `bytes` from `start` on, aligned to 8, for as long as this object lives.
    Dmb(std::shared_ptr<const void> memory, std::uint8_t* start, std::uint32_t bytes,
        std::unique_ptr<Doorbell> doorbell, Lease lease = Lease())
        : memory_(std::move(memory)), start_(start), bytes_(bytes), doorbell_(std::move(doorbell)), lease_(lease) {}

    // CDC included.
    [[nodiscard]] std::uint32_t bytes() const { return bytes_; }
    // The data ring after the CDC.
    [[nodiscard]] std::span<std::uint8_t> ring() const { return {start_ + cdc::kSmcdBytes, bytes_ - cdc::kSmcdBytes}; }
    [[nodiscard]] Doorbell& doorbell() const { return *doorbell_; }
    [[nodiscard]] const Lease& lease() const { return lease_; }

    // Owner's side, after it has taken the lease: makes the DMB ready for another connection. Old bytes stay in the
    // ring; they are not read before they are overwritten.
    void begin_again() const;

    // Peer's side, when its owner has consumed everything: gives the pages of the ring back to the system. They are
    // allocated again, zeroed, when they are written. Only the writing side can do this, because only it knows that
    // nothing is being written.
    void give_pages_back() const;

    // Cursors as packed by cdc::pack(), always read and written whole.
    [[nodiscard]] std::uint64_t load_producer() const { return word(cdc::kProducerOffset).load(); }
    [[nodiscard]] std::uint64_t load_consumer() const { return word(cdc::kConsumerOffset).load(); }
    void store_producer(std::uint64_t value) const { word(cdc::kProducerOffset).store(value); }
    void store_consumer(std::uint64_t value) const { word(cdc::kConsumerOffset).store(value); }

 private:
    [[nodiscard]] std::atomic_ref<std::uint64_t> word(std::uint32_t offset) const {
        return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(start_ + offset));
    }

    std::shared_ptr<const void> memory_;
    std::uint8_t* start_;
    std::uint32_t bytes_;
    std::unique_ptr<Doorbell> doorbell_;
    Lease lease_;
};

}  // namespace smc::smcd
