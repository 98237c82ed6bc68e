// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The send buffers that applications behind a leg have at this moment (map smc_chosen). The programs write there with
// each packet of the application; the data path reads it without a system call.
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
    // `map_fd`: of `entries` words. The mapping keeps the map.
    static Result<std::shared_ptr<ChosenBuffers>> open(int map_fd, std::uint32_t entries);

    // One leg's word, until this is destroyed, on any thread.
    class Word {
     public:
        Word(std::shared_ptr<ChosenBuffers> of, std::uint16_t number) : of_(std::move(of)), number_(number) {}
        ~Word() { of_->give_back(number_); }
        Word(const Word&) = delete;
        Word& operator=(const Word&) = delete;

        // What the leg's struct smc_sock names it by; never 0.
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
    // The one that was given back first is taken first: a packet of the connection before may still write there.
    std::deque<std::uint16_t> free_;
};

}  // namespace smc::bpf
