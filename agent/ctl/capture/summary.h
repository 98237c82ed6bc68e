// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The stories of a capture, for people and as JSON.
#pragma once

#include <iosfwd>
#include <nlohmann/json.hpp>
#include <vector>

#include "agent/ctl/capture/dissector.h"

namespace smc::capture {

void print_summary(std::ostream& out, const Dissector& dissector);
// One object per connection ("kind": "connection"), per link group, and one with the counters.
std::vector<nlohmann::ordered_json> summary_json(const Dissector& dissector);

}  // namespace smc::capture
