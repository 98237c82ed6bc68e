// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/ivshmem/vfio_device.h"

#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>

#include <cstring>
#include <filesystem>

#include "os/exclusive_file.h"

namespace smc::ivshmem {

namespace {

// Registers in BAR 0.
constexpr std::uint64_t kPosition = 8, kDoorbell = 12;
constexpr std::uint32_t kVector = 0;

std::string name_behind(const std::filesystem::path& link) {
    std::error_code failure;
    return std::filesystem::read_symlink(link, failure).filename().string();
}

Result<vfio_region_info> region(int device, std::uint32_t index) {
    vfio_region_info info{};
    info.argsz = sizeof info;
    info.index = index;
    if (::ioctl(device, VFIO_DEVICE_GET_REGION_INFO, &info) != 0) {
        return last_error("asking VFIO for a region");
    }
    return info;
}

}  // namespace

Result<std::unique_ptr<VfioDevice>> VfioDevice::open(const std::string& bar) {
    const auto device = std::filesystem::path(bar).parent_path();
    if (name_behind(device / "driver") != "vfio-pci") {
        return std::unique_ptr<VfioDevice>();
    }
    std::unique_ptr<VfioDevice> opened(new VfioDevice());
    auto done = opened->open_group(device.filename().string(), name_behind(device / "iommu_group"));
    if (done) {
        done = opened->find_position();
    }
    return done ? Result<std::unique_ptr<VfioDevice>>(std::move(opened)) : done.error();
}

// Only one process can open a group, and with it the device: an agent that is leaving shares its descriptor with the
// next agent (open_exclusive()).
Result<void> VfioDevice::open_group(const std::string& pci_address, const std::string& group) {
    std::error_code failure;
    const std::string usual = "/dev/vfio/" + group, without_iommu = "/dev/vfio/noiommu-" + group;
    const bool iommu = !std::filesystem::exists(without_iommu, failure);
    auto opened = open_exclusive(iommu ? usual : without_iommu);
    if (!opened) {
        return opened.error();
    }
    group_ = std::move(*opened);
    vfio_group_status status{};
    status.argsz = sizeof status;
    if (::ioctl(group_.get(), VFIO_GROUP_GET_STATUS, &status) != 0) {
        return last_error("asking for the IOMMU group of " + pci_address);
    }
    if ((status.flags & VFIO_GROUP_FLAGS_VIABLE) == 0) {
        return Error{EBUSY, "the IOMMU group of " + pci_address + " has devices that vfio-pci does not have"};
    }
    if ((status.flags & VFIO_GROUP_FLAGS_CONTAINER_SET) == 0) {
        container_.reset(::open("/dev/vfio/vfio", O_RDWR | O_CLOEXEC));
        const int container = container_.get();
        if (!container_ || ::ioctl(group_.get(), VFIO_GROUP_SET_CONTAINER, &container) != 0 ||
            ::ioctl(container, VFIO_SET_IOMMU, iommu ? VFIO_TYPE1v2_IOMMU : VFIO_NOIOMMU_IOMMU) != 0) {
            return last_error("opening the IOMMU group of " + pci_address);
        }
    }
    device_.reset(::ioctl(group_.get(), VFIO_GROUP_GET_DEVICE_FD, pci_address.c_str()));
    return device_ ? Result<void>() : last_error("opening " + pci_address);
}

Result<void> VfioDevice::find_position() {
    const auto registers = region(device_.get(), VFIO_PCI_BAR0_REGION_INDEX);
    if (!registers) {
        return registers.error();
    }
    registers_ = registers->offset;
    std::int32_t position = -1;
    if (::pread(device_.get(), &position, sizeof position, static_cast<off_t>(registers_ + kPosition)) !=
        sizeof position) {
        return last_error("reading the IVPosition register of the ivshmem device");
    }
    if (position < 0 || position > UINT16_MAX) {
        return Error{ENODEV, "the device has no position: it is no ivshmem-doorbell, or its server does not answer"};
    }
    position_ = static_cast<std::uint16_t>(position);
    return {};
}

Result<void> VfioDevice::ask_for_interrupts() {
    if (!interrupt_) {
        interrupt_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    }
    alignas(vfio_irq_set) std::uint8_t request[sizeof(vfio_irq_set) + sizeof(int)] = {};
    auto& set = *reinterpret_cast<vfio_irq_set*>(request);
    set.argsz = sizeof request;
    set.flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
    set.index = VFIO_PCI_MSIX_IRQ_INDEX;
    set.start = kVector;
    set.count = 1;
    const int eventfd = interrupt_.get();
    std::memcpy(set.data, &eventfd, sizeof eventfd);
    if (!interrupt_ || ::ioctl(device_.get(), VFIO_DEVICE_SET_IRQS, &set) != 0) {
        return last_error("asking for the device's interrupts");
    }
    // The device sends an interrupt (MSI-X) by a write to memory, so it must be a bus master.
    const auto settings = region(device_.get(), VFIO_PCI_CONFIG_REGION_INDEX);
    if (!settings) {
        return settings.error();
    }
    std::uint16_t command = 0;
    const auto at = static_cast<off_t>(settings->offset + PCI_COMMAND);
    if (::pread(device_.get(), &command, sizeof command, at) != sizeof command) {
        return last_error("reading the device's configuration");
    }
    command |= PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER;
    return ::pwrite(device_.get(), &command, sizeof command, at) == sizeof command
               ? Result<void>()
               : last_error("enabling the device's interrupts");
}

Result<Mapping> VfioDevice::memory() const {
    const auto memory = region(device_.get(), VFIO_PCI_BAR2_REGION_INDEX);
    return memory ? Mapping::shared(device_.get(), memory->size, static_cast<off_t>(memory->offset)) : memory.error();
}

void VfioDevice::ring(std::uint16_t position) const {
    const std::uint32_t word = std::uint32_t{position} << 16 | kVector;
    [[maybe_unused]] const auto written =
        ::pwrite(device_.get(), &word, sizeof word, static_cast<off_t>(registers_ + kDoorbell));
}

void VfioDevice::heard() const {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto read = ::read(interrupt_.get(), &count, sizeof count);
}

}  // namespace smc::ivshmem
