// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The histories of a capture, for people and as JSON.
#pragma once

#include <functional>
#include <iosfwd>
#include <nlohmann/json.hpp>

#include "ctl/capture/dissector.h"

namespace smc::capture {

void print_summary(std::ostream& out, const Dissector& dissector);
// One object per connection ("kind": "connection"), per link group, per queue pair without CLC, and one with the
// counters, one after the other.
void summary_json(const Dissector& dissector, const std::function<void(const nlohmann::ordered_json&)>& line);
// What a reader must know about what is missing; one line each. `usual_ones`: also what any capture has.
void print_counters(std::ostream& out, const Dissector& dissector, bool usual_ones);

}  // namespace smc::capture
