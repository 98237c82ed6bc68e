// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Checks the JSON text of a configuration while it is parsed: duplicate keys, of which the schema check would see the
// last one only, and values that are too long or nested too deeply.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/config/config.h"

namespace smc {

class Reading {
 public:
    // To be called with each event of nlohmann::json's parser, in order.
    void see(nlohmann::json::parse_event_t event, const nlohmann::json& value);
    // The first problem that was found.
    [[nodiscard]] const std::optional<ConfigProblem>& problem() const { return problem_; }

 private:
    // An object or an array whose end the parser has not reached yet.
    struct Open {
        bool array;
        std::size_t items = 0;
        std::set<std::string> keys;
        std::string key;  // the last key
    };
    void fail(const std::string& text);

    std::vector<Open> open_;
    std::optional<ConfigProblem> problem_;
};

}  // namespace smc
