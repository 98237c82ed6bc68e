// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The bypass, as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "agent/bypass/bypass.h"
#include "agent/bypass/probe.h"
#include "agent/bypass/rounds.h"

namespace smc {

// The answer for `smcctl probe`.
[[nodiscard]] nlohmann::json describe(const std::optional<bypass::Verdict>& verdict);
// The answer for `smcctl bypass`. nullptr: there is no bypass, or there are no rounds yet.
[[nodiscard]] nlohmann::json describe(const bypass::Bypass* bypass, const bypass::Rounds* rounds);
// A member of the bypass, in the form of a connection.
[[nodiscard]] nlohmann::json describe(const bypass::Bypass::Listed& listed);

}  // namespace smc
