// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The choices of applications behind a leg (map smc_chosen): their current SO_SNDBUF, and whether they have sent urgent
// data. The programs write it with each packet of the application; the data path reads it without a system call.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "os/mapping.h"

namespace smc::bpf {

class ChosenBuffers : public std::enable_shared_from_this<ChosenBuffers> {
 public:
    // `map_fd`: a map of `entries` entries (struct smc_chosen). The mapping keeps the map alive.
    static Result<std::shared_ptr<ChosenBuffers>> open(int map_fd, std::uint32_t entries);

    // The entry of one leg. The destructor gives it back, on any thread.
    class Lease {
     public:
        Lease(std::shared_ptr<ChosenBuffers> of, std::uint16_t number) : of_(std::move(of)), number_(number) {}
        ~Lease() { of_->give_back(number_); }
        Lease(const Lease&) = delete;
        Lease& operator=(const Lease&) = delete;

        // The index for `chosen` of the leg's struct smc_sock; never 0.
        [[nodiscard]] std::uint16_t number() const { return number_; }
        // SO_SNDBUF as the kernel counts; 0: the application did not choose it.
        [[nodiscard]] const std::atomic<std::uint32_t>& send() const { return of_->entries_[number_].send; }
        // Not 0: the application has sent urgent data. Set before the leg receives the first packet of it.
        [[nodiscard]] const std::atomic<std::uint32_t>& urgent() const { return of_->entries_[number_].urgent; }

     private:
        std::shared_ptr<ChosenBuffers> of_;
        std::uint16_t number_;
    };
    // `send`: what the application had chosen when it connected or listened. nullptr: every entry is in use.
    [[nodiscard]] std::shared_ptr<const Lease> take(std::uint32_t send);

 private:
    // struct smc_chosen, as memory that BPF programs write.
    struct Entry {
        std::atomic<std::uint32_t> send, urgent;
    };
    ChosenBuffers(Mapping mapping, std::uint32_t entries);
    void give_back(std::uint16_t number);

    Mapping mapping_;
    Entry* entries_;
    std::mutex mutex_;
    // First in, first out: a late packet of the connection before may still write to an entry that was given back.
    std::deque<std::uint16_t> free_;
};

}  // namespace smc::bpf
