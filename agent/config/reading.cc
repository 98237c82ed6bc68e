// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/config/reading.h"

#include <fmt/format.h>

namespace smc {

namespace {

using nlohmann::json;
using Event = json::parse_event_t;

constexpr std::size_t kDeepest = 16, kLongest = 4096;

}  // namespace

void Reading::see(Event event, const json& value) {
    if (problem_) {
        return;
    }
    const bool begins = event == Event::object_start || event == Event::array_start;
    if ((begins || event == Event::value) && !open_.empty()) {
        open_.back().items++;
    }
    if (event == Event::object_end || event == Event::array_end) {
        open_.pop_back();
    } else if (begins && open_.size() == kDeepest) {
        fail(fmt::format("found a value that is nested deeper than {} times", kDeepest));
    } else if (begins) {
        open_.push_back({.array = event == Event::array_start, .keys = {}, .key = {}});
    } else if (value.is_string() && value.get_ref<const std::string&>().size() > kLongest) {
        fail(fmt::format("found a text of {} characters, allowed: at most {}",
                         value.get_ref<const std::string&>().size(), kLongest));
    } else if (value.is_string() && value.get_ref<const std::string&>().find('\0') != std::string::npos) {
        fail("found a text with a zero byte");
    } else if (event == Event::key) {
        open_.back().key = value.get<std::string>();
        if (!open_.back().keys.insert(open_.back().key).second) {
            fail("found twice, allowed: once");
        }
    }
}

void Reading::fail(const std::string& text) {
    json::json_pointer pointer;
    for (const Open& one : open_) {
        if (one.array) {
            pointer /= one.items - 1;
        } else {
            pointer /= one.key;
        }
    }
    problem_ = {pointer.to_string(), text};
}

}  // namespace smc
