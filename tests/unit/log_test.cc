// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Lines of the log that others can cause, and how many lines are kept.
#include "agent/log/log.h"

#include <catch2/catch.hpp>

using namespace smc;

namespace {

std::vector<std::string> texts_behind(std::uint64_t after) {
    std::vector<std::string> texts;
    for (const LogLine& line : log_lines(after)) {
        texts.push_back(line.text);
    }
    return texts;
}

std::uint64_t last_line() {
    const auto lines = log_lines(0);
    return lines.empty() ? 0 : lines.back().number;
}

}  // namespace

TEST_CASE("log__what_others_cause_is_limited_by_its_format") {
    const std::uint64_t before = last_line();
    const auto began = os::now();
    constexpr std::size_t kLines = 1000;
    for (std::size_t i = 0; i < kLines; i++) {
        log()->limited(LogLevel::kWarn, "netns {}: a line of a test", i);
    }
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(os::now() - began).count();
    const auto lines = texts_behind(before);
    CHECK(lines.size() <= static_cast<std::size_t>(5 * (seconds + 2)));
    REQUIRE(lines.size() >= 5);
    CHECK(lines[0] == "netns 0: a line of a test");
    CHECK(lines[4] == "netns 4: a line of a test");
    log()->limited(LogLevel::kWarn, "netns {}: a line of another kind", 1);
    CHECK(texts_behind(before).back() == "netns 1: a line of another kind");
}

TEST_CASE("log__long_lines_are_kept_for_a_shorter_time") {
    const std::string long_one(1U << 20, 'x');
    last_line();  // from now on lines of this level are kept, though they are not written
    for (int i = 0; i < 10; i++) {
        log()->debug("{}", long_one);
    }
    std::size_t bytes = 0;
    const auto lines = texts_behind(0);
    for (const std::string& line : lines) {
        bytes += line.size();
    }
    CHECK(lines.back() == long_one);
    CHECK(bytes <= 4U << 20);
    log()->info("the last one");
    CHECK(texts_behind(0).back() == "the last one");
}
