// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The agent's log on stderr: one line per fact, mostly "noun id: fact: cause", in lower case. Any thread.
//
// This header does not include spdlog: its templates, in every line of every file, took most of the build's time.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "os/clock.h"

namespace smc {

template <class T>
concept HasText = requires(const T& value) {
    { value.text() } -> std::convertible_to<std::string>;
};

}  // namespace smc

// An object with text() may be an argument of a log line. Its text is made only if the line is formatted.
template <smc::HasText T>
struct fmt::formatter<T> {
    static constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
    static auto format(const T& value, fmt::format_context& context) {
        const std::string text = value.text();
        return std::copy(text.begin(), text.end(), context.out());
    }
};

namespace smc {

enum class LogLevel : std::uint8_t {
    kDebug,  // every connection
    kInfo,   // life cycle and refusals
    kWarn,   // something is not as it should be
    kError,  // the operator must act
};

class Log {
 public:
    template <typename... A>
    void debug(fmt::format_string<A...> format, A&&... a) const {
        write(LogLevel::kDebug, format, fmt::make_format_args(a...));
    }
    template <typename... A>
    void info(fmt::format_string<A...> format, A&&... a) const {
        write(LogLevel::kInfo, format, fmt::make_format_args(a...));
    }
    template <typename... A>
    void warn(fmt::format_string<A...> format, A&&... a) const {
        write(LogLevel::kWarn, format, fmt::make_format_args(a...));
    }
    template <typename... A>
    void error(fmt::format_string<A...> format, A&&... a) const {
        write(LogLevel::kError, format, fmt::make_format_args(a...));
    }

    // For lines that users or peers can cause as often as they like: at most five a second with this format; the next
    // one says how many were kept back.
    template <typename... A>
    void limited(LogLevel level, fmt::format_string<A...> format, A&&... a) const {
        write_limited(level, format, fmt::make_format_args(a...));
    }

    // Formats the line only if it is written or kept for log_lines().
    void write(LogLevel level, fmt::string_view format, fmt::format_args args) const;

 private:
    void write_limited(LogLevel level, fmt::string_view format, fmt::format_args args) const;
};

// `level`: a value of the key log.level. Before this call, lines of level info and above are written.
void start_log(const std::string& level);
// To be called before the process ends: waits for a moment until the reader of standard error has taken all lines.
void end_log();
// Lines that were dropped because standard error was not read fast enough (log_writer.h).
[[nodiscard]] std::uint64_t log_lines_dropped();

// One of the last lines, which are kept for `smcctl events`. Debug lines are kept only while a client listens.
struct LogLine {
    std::uint64_t number = 0;  // from 1, one more with each line
    std::chrono::system_clock::time_point when;
    const char* level = "";
    std::string text;
};
// The kept lines after number `after`. The caller counts as a listening client for the next five seconds.
[[nodiscard]] std::vector<LogLine> log_lines(std::uint64_t after);

inline const Log* log() {
    static constexpr Log kLog;
    return &kLog;
}

// Lets a burst of lines of one kind through and then says how many it kept back. Not thread-safe.
class LogLimiter {
 public:
    // True if the line may be written; `held_back` then tells how many of this kind were not.
    bool admit(const std::string& kind, std::uint64_t& held_back) {
        Kind& k = kinds_[kind];
        const auto now = os::now();
        if (now - k.since >= std::chrono::seconds(1)) {
            k.since = now;
            k.written = 0;
        }
        if (k.written >= kPerSecond) {
            k.held_back++;
            return false;
        }
        k.written++;
        held_back = std::exchange(k.held_back, 0);
        return true;
    }

 private:
    static constexpr unsigned kPerSecond = 5;
    struct Kind {
        std::chrono::steady_clock::time_point since;
        unsigned written = 0;
        std::uint64_t held_back = 0;
    };
    std::map<std::string, Kind> kinds_;
};

}  // namespace smc
