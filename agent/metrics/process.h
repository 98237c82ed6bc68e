// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The kernel's counters of this process, as Prometheus's own client libraries export them under process_*.
#pragma once

namespace smc {

struct ProcessUsage {
    double processor_s = 0, resident_bytes = 0, descriptors = 0, most_descriptors = 0, start_s = 0;
};
[[nodiscard]] ProcessUsage process_usage();

}  // namespace smc
