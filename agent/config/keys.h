// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Every key of the configuration, one row each: its section and name, its allowed values, its meaning, and the member
// of Config that holds it. The schema, the parser, the printer and the documentation's table are made from the rows.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "agent/config/config.h"

namespace smc {

struct ConfigKey {
    std::string section, name;
    nlohmann::ordered_json schema;  // JSON Schema, without the description
    std::string meaning;
    std::function<void(Config&, const nlohmann::json&)> set{};  // takes only a value that the schema allows
    std::function<nlohmann::ordered_json(const Config&)> get{};
    bool first = false;  // one of the few to start with; the others are for experts
};

// A key of an earlier version. Its value goes to its successor, if it has one.
struct FormerKey {
    const char *section, *name;
    const char* successor;  // the name in the same section; nullptr: the key is gone
    const char* now;        // for the log: its new name, or why it is gone
};

// In the order in which the schema and the documentation list them; keys of one section are together.
const std::vector<ConfigKey>& config_keys();
const std::vector<FormerKey>& former_keys();

}  // namespace smc
