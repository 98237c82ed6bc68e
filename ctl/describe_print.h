// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Descriptions of messages (smc/wire/describe.h) as text and as JSON.
#pragma once

#include <iosfwd>
#include <nlohmann/json.hpp>

#include "smc/wire/describe.h"

namespace smc::ctl {

// An object with the fields in the order of the table.
nlohmann::ordered_json to_json(const Fields& fields);
// {"field", "offset", "found", "expected", "verdict"}.
nlohmann::ordered_json to_json(const Fault& fault);
// One line per field, indented.
void print_fields(std::ostream& out, const Fields& fields, unsigned indent);
// "CLC PROPOSAL, version 2", and what is wrong with the message, if anything.
std::string title(const Description& message);

}  // namespace smc::ctl
