// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The current SO_SNDBUF of applications behind a leg (map smc_chosen). The programs write it with each packet of the
// application; the data path reads it without a system call.
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
    // `map_fd`: a map of `entries` words. The mapping keeps the map alive.
    static Result<std::shared_ptr<ChosenBuffers>> open(int map_fd, std::uint32_t entries);

    // The word of one leg. The destructor gives it back, on any thread.
    class Word {
     public:
        Word(std::shared_ptr<ChosenBuffers> of, std::uint16_t number) : of_(std::move(of)), number_(number) {}
        ~Word() { of_->give_back(number_); }
        Word(const Word&) = delete;
        Word& operator=(const Word&) = delete;

        // The index for `chosen` of the leg's struct smc_sock; never 0.
        [[nodiscard]] std::uint16_t number() const { return number_; }
        // SO_SNDBUF as the kernel counts; 0: the application did not choose it.
        [[nodiscard]] const std::atomic<std::uint64_t>& send() const { return of_->words_[number_]; }

     private:
        std::shared_ptr<ChosenBuffers> of_;
        std::uint16_t number_;
    };
    // `send`: what the application had chosen when it connected or listened. nullptr: every word is in use.
    [[nodiscard]] std::shared_ptr<const Word> take(std::uint32_t send);

 private:
    ChosenBuffers(Mapping mapping, std::uint32_t entries);
    void give_back(std::uint16_t number);

    Mapping mapping_;
    std::atomic<std::uint64_t>* words_;
    std::mutex mutex_;
    // First in, first out: a late packet of the connection before may still write to a word that was given back.
    std::deque<std::uint16_t> free_;
};

}  // namespace smc::bpf
