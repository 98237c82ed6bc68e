// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// QEMU's ivshmem-doorbell through VFIO, which passes the device's interrupts to user space. The device must be bound to
// the driver vfio-pci, and there must be an IOMMU, or a kernel with VFIO_NOIOMMU. See Linux's
// Documentation/driver-api/vfio.rst and QEMU's docs/specs/ivshmem-spec.rst.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "os/mapping.h"
#include "os/result.h"
#include "os/unique_fd.h"

namespace smc::ivshmem {

class VfioDevice {
 public:
    // Opens the device that this BAR belongs to. nullptr: it is not bound to vfio-pci.
    static Result<std::unique_ptr<VfioDevice>> open(const std::string& bar);

    // The shared memory. With vfio-pci the kernel allows no other way to map it. The mapping keeps the device open.
    [[nodiscard]] Result<Mapping> memory() const;
    // The number by which other machines interrupt this one.
    [[nodiscard]] std::uint16_t position() const { return position_; }
    // Interrupts the machine at that position; if there is none, nothing happens.
    void ring(std::uint16_t position) const;
    // From here on interrupts are reported to this process, and to no other process that has the device open.
    Result<void> ask_for_interrupts();
    // A descriptor that is readable from an interrupt until heard().
    [[nodiscard]] int interrupt() const { return interrupt_.get(); }
    void heard() const;

 private:
    VfioDevice() = default;
    Result<void> open_group(const std::string& pci_address, const std::string& group);
    Result<void> find_position();

    UniqueFd container_, group_, device_, interrupt_;
    std::uint64_t registers_ = 0;  // where BAR 0 is in `device_`
    std::uint16_t position_ = 0;
};

}  // namespace smc::ivshmem
