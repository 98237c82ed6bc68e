// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Writes lines to a descriptor whose reader may stand still. A file is written to at once. A pipe, a socket or a
// terminal is written to by a thread of its own, so that no thread that logs waits for the reader; lines for which
// its queue has no space are dropped, and counted. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

namespace smc {

class LogWriter {
 public:
    // Limits of the lines that wait for the reader.
    static constexpr std::size_t kMostLines = 4096, kMostBytes = 1U << 20;

    // `fd` is not closed. `says`: makes the line that tells how many lines were dropped before it.
    LogWriter(int fd, std::function<std::string(std::uint64_t dropped)> says);
    // Lines that the reader has not taken after a fifth of a second are lost.
    ~LogWriter();
    LogWriter(const LogWriter&) = delete;
    LogWriter& operator=(const LogWriter&) = delete;

    // `line`: with its newline.
    void write(std::string_view line);
    // Waits until all lines are written, for at most a fifth of a second. False: some are not.
    bool drain();
    // Lines dropped since the start.
    [[nodiscard]] std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
    struct Shared;
    static void serve(const std::shared_ptr<Shared>& shared);

    const int fd_;
    std::atomic<std::uint64_t> dropped_{0};
    std::shared_ptr<Shared> shared_;  // null: the descriptor is a file
    std::thread thread_;
};

}  // namespace smc
