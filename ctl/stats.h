// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `smcctl stats`: sums, and those since the user's last reset. A reset is a file of the user's, as with smcr stats: the
// agent counts on, and nobody else's sums change.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace smc::ctl {

[[nodiscard]] nlohmann::json sums_of(const nlohmann::json& status);
[[nodiscard]] nlohmann::json since_reset(const nlohmann::json& status);
// False: it could not be remembered, and the user was told why.
[[nodiscard]] bool reset_stats(const nlohmann::json& status);

}  // namespace smc::ctl
