// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/log/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace smc {

namespace {

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

}  // namespace

void Log::write(LogLevel level, fmt::string_view format, fmt::format_args args) const {
    auto* const logger = spdlog::default_logger_raw();
    if (logger->should_log(level_of(level))) {
        logger->log(level_of(level), fmt::vformat(format, args));
    }
}

void start_log(const std::string& level) {
    spdlog::set_default_logger(spdlog::stderr_logger_mt("smc-agent"));
    spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %l %v", spdlog::pattern_time_type::utc);
    spdlog::set_level(spdlog::level::from_str(level));
}

}  // namespace smc
