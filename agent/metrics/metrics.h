// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The agent's metrics, in Prometheus's text format. Names are smc_agent_SUBSYSTEM_NAME_UNIT[_total];
// labels have few values: paths, reasons, devices, never addresses.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace smc {

// Content-Type of the text.
inline constexpr const char* kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

// `status`: from Introspection. Adds the kernel's counters of this process, and of net/smc where the kernel has it.
[[nodiscard]] std::string metrics(const nlohmann::json& status);

}  // namespace smc
