// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// QEMU's ivshmem devices, as PCI shows them.
#pragma once

#include <string>

#include "os/result.h"

namespace smc::ivshmem {

// The file of the shared memory of the first one. ENODEV: there is none.
[[nodiscard]] Result<std::string> find_device(const std::string& devices = "/sys/bus/pci/devices");
// If it is a BAR of a device that is not enabled, it is from here on.
[[nodiscard]] Result<void> enable(const std::string& bar);

// What the BAR belongs to: a PCI address; of another file its own path.
[[nodiscard]] std::string device_of(const std::string& bar);

}  // namespace smc::ivshmem
