// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// QEMU's ivshmem devices, as PCI shows them.
#pragma once

#include <string>

#include "os/result.h"

namespace smc::ivshmem {

// The file of the shared memory of the first one, enabled. ENODEV: there is none.
[[nodiscard]] Result<std::string> find_device(const std::string& devices = "/sys/bus/pci/devices");
// The same file; if it is a BAR of a device that no driver has enabled, it is enabled first.
[[nodiscard]] Result<std::string> enable(const std::string& bar);

}  // namespace smc::ivshmem
