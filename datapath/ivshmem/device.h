// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// QEMU's ivshmem devices, as sysfs shows them.
#pragma once

#include <string>

#include "os/result.h"

namespace smc::ivshmem {

// The file of the first device's BAR 2, its shared memory. ENODEV: there is no such device.
[[nodiscard]] Result<std::string> find_device(const std::string& devices = "/sys/bus/pci/devices");
// Enables the PCI device of this BAR, if it is not enabled. Does nothing for any other file.
[[nodiscard]] Result<void> enable(const std::string& bar);

// The PCI address of the BAR's device; the path itself for any other file.
[[nodiscard]] std::string device_of(const std::string& bar);

}  // namespace smc::ivshmem
