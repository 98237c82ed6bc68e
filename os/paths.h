// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The default path of the socket by which smcctl talks to the agent.
#pragma once

namespace smc {

inline constexpr const char* kControlSocket = "/run/smc-agent/control.sock";

}  // namespace smc
