// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Prints the histories of a capture as text and as JSON.
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
// Prints what a reader must know about missing packets, one line each. `usual_ones`: also counts frames that have
// nothing to do with SMC, as any capture has them.
void print_counters(std::ostream& out, const Dissector& dissector, bool usual_ones);

}  // namespace smc::capture
