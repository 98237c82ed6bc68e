// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `smcctl stats`: totals since the agent's start, or since the user's last reset. As with smcr stats, a reset writes a
// file of the user: the agent counts on, and other users' sums do not change.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace smc::ctl {

[[nodiscard]] nlohmann::json sums_of(const nlohmann::json& status);
[[nodiscard]] nlohmann::json since_reset(const nlohmann::json& status);
// False: the file could not be written, and the user was told why.
[[nodiscard]] bool reset_stats(const nlohmann::json& status);

}  // namespace smc::ctl
