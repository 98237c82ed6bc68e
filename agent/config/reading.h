// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What is wrong with a configuration before a schema can look at it: a key that stands twice, of which only the last
// would be seen, and what is too large or too deep to be looked at.
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
    // Each event of nlohmann::json's parser, in order.
    void see(nlohmann::json::parse_event_t event, const nlohmann::json& value);
    // The first one.
    [[nodiscard]] const std::optional<ConfigProblem>& problem() const { return problem_; }

 private:
    // An object or an array that is not at its end yet.
    struct Open {
        bool array;
        std::size_t items = 0;
        std::set<std::string> keys;
        std::string key;  // the last one
    };
    void fail(const std::string& text);

    std::vector<Open> open_;
    std::optional<ConfigProblem> problem_;
};

}  // namespace smc
