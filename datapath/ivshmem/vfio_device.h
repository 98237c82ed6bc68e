// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// QEMU's ivshmem-doorbell by VFIO, which hands its interrupts to user space: the driver vfio-pci has the device, and
// there is an IOMMU, or the kernel has VFIO_NOIOMMU. Linux's Documentation/driver-api/vfio.rst, QEMU's
// docs/specs/ivshmem-spec.rst.
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
    // That this BAR belongs to. nullptr: vfio-pci does not have it.
    static Result<std::unique_ptr<VfioDevice>> open(const std::string& bar);

    // The shared memory: the kernel lets nobody map it in another way. It keeps the device open.
    [[nodiscard]] Result<Mapping> memory() const;
    // By which the others interrupt this machine.
    [[nodiscard]] std::uint16_t position() const { return position_; }
    // Interrupts the machine at that position; if there is none, nothing happens.
    void ring(std::uint16_t position) const;
    // From here on this process is told of interrupts, and another one that has the device open is not.
    Result<void> ask_for_interrupts();
    // Readable when this machine was interrupted, until it is told that this was heard.
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
