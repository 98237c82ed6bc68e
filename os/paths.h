// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Where the agent and smcctl meet when nobody says otherwise.
#pragma once

namespace smc {

inline constexpr const char* kControlSocket = "/run/smc-agent/control.sock";

}  // namespace smc
