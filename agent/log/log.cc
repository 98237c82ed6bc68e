// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/log/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>

#include "agent/log/log_writer.h"
#include "os/clock.h"

namespace smc {

namespace {

constexpr const char* kPattern = "%Y-%m-%dT%H:%M:%S.%eZ %l %v";

spdlog::level::level_enum level_of(LogLevel level) {
    switch (level) {
        case LogLevel::kDebug:
            return spdlog::level::debug;
        case LogLevel::kInfo:
            return spdlog::level::info;
        case LogLevel::kWarn:
            return spdlog::level::warn;
        case LogLevel::kError:
            return spdlog::level::err;
    }
    return spdlog::level::err;
}

const char* name(LogLevel level) {
    switch (level) {
        case LogLevel::kDebug:
            return "debug";
        case LogLevel::kInfo:
            return "info";
        case LogLevel::kWarn:
            return "warn";
        case LogLevel::kError:
            return "error";
    }
    return "error";
}

// The lines that are kept for log_lines(). Any thread.
class LastLines {
 public:
    [[nodiscard]] bool wants(LogLevel level) const {
        return level != LogLevel::kDebug ||
               os::now().time_since_epoch().count() < listened_until_.load(std::memory_order_relaxed);
    }
    void add(LogLevel level, std::string text) {
        const std::lock_guard lock(mutex_);
        bytes_ += text.size();
        lines_.push_back({++last_, os::wall_now(), name(level), std::move(text)});
        while (lines_.size() > kKept || (bytes_ > kKeptBytes && lines_.size() > 1)) {
            bytes_ -= lines_.front().text.size();
            lines_.pop_front();
        }
    }
    std::vector<LogLine> behind(std::uint64_t after) {
        listened_until_ = (os::now() + kListens).time_since_epoch().count();
        const std::lock_guard lock(mutex_);
        const auto first = std::ranges::upper_bound(lines_, after, {}, &LogLine::number);
        return {first, lines_.end()};
    }

 private:
    static constexpr std::size_t kKept = 2048, kKeptBytes = 4U << 20;
    static constexpr auto kListens = std::chrono::seconds(5);
    std::mutex mutex_;
    std::deque<LogLine> lines_;
    std::size_t bytes_ = 0;  // of their texts
    std::uint64_t last_ = 0;
    std::atomic<std::chrono::steady_clock::rep> listened_until_{std::chrono::steady_clock::duration::min().count()};
};

// Standard error as a sink of spdlog.
class Sink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
    Sink() : writer_(STDERR_FILENO, [](std::uint64_t dropped) { return line_about(dropped); }) {}
    [[nodiscard]] std::uint64_t dropped() const { return writer_.dropped(); }
    void drain() { writer_.drain(); }

 protected:
    void sink_it_(const spdlog::details::log_msg& message) override {
        spdlog::memory_buf_t line;
        formatter_->format(message, line);
        writer_.write({line.data(), line.size()});
    }
    void flush_() override {}

 private:
    static std::string line_about(std::uint64_t dropped) {
        const std::string text =
            fmt::format("log: {} lines of the log were dropped: standard error is not read fast enough", dropped);
        spdlog::memory_buf_t line;
        line_formatter().format({spdlog::source_loc{}, "smc-agent", spdlog::level::warn, text}, line);
        return {line.data(), line.size()};
    }
    static spdlog::formatter& line_formatter() {
        static auto& formatter = *new spdlog::pattern_formatter(kPattern, spdlog::pattern_time_type::utc);
        return formatter;  // never destroyed, as the sink
    }

    LogWriter writer_;
};

// Never destroyed: any thread may log until the process ends.
std::shared_ptr<Sink>& sink() {
    static auto& sink = *new std::shared_ptr<Sink>;
    return sink;
}

LastLines& last_lines() {
    static LastLines lines;
    return lines;
}

}  // namespace

std::vector<LogLine> log_lines(std::uint64_t after) {
    return last_lines().behind(after);
}

void Log::write(LogLevel level, fmt::string_view format, fmt::format_args args) const {
    auto* const logger = spdlog::default_logger_raw();
    const bool written = logger->should_log(level_of(level)), kept = last_lines().wants(level);
    if (!written && !kept) {
        return;
    }
    std::string text = fmt::vformat(format, args);
    if (written) {
        logger->log(level_of(level), text);
    }
    if (kept) {
        last_lines().add(level, std::move(text));
    }
}

void Log::write_limited(LogLevel level, fmt::string_view format, fmt::format_args args) const {
    static std::mutex mutex;
    static LogLimiter limiter;
    std::uint64_t held_back = 0;
    {
        const std::lock_guard lock(mutex);
        if (!limiter.admit({format.data(), format.size()}, held_back)) {
            return;
        }
    }
    const std::string text = fmt::vformat(format, args);
    const std::string more = held_back != 0 ? ", and " + std::to_string(held_back) + " more like it" : "";
    write(level, "{}{}", fmt::make_format_args(text, more));
}

void start_log(const std::string& level) {
    sink() = std::make_shared<Sink>();
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("smc-agent", sink()));
    spdlog::set_pattern(kPattern, spdlog::pattern_time_type::utc);
    spdlog::set_level(spdlog::level::from_str(level));
}

void end_log() {
    if (sink()) {
        sink()->drain();
    }
}

std::uint64_t log_lines_dropped() {
    return sink() ? sink()->dropped() : 0;
}

}  // namespace smc
