// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory that RDMA devices may use. One piece of memory can be registered with several protection domains: an RMB is
// reached over every link of its group (RFC 7609 section 4.2).
#pragma once

#include <memory>
#include <vector>

#include "datapath/roce/verbs.h"
#include "os/mapping.h"

namespace smc::roce {

class Memory {
 public:
    enum class Access : std::uint8_t { kLocal, kRemoteWrite };

    // Page-aligned and zeroed; not registered yet.
    static Result<std::shared_ptr<Memory>> allocate(std::size_t bytes);

    // The memory's registration with this domain, which is made now if there is none yet. Lives as long as the memory.
    Result<const MemoryRegion*> register_with(const std::shared_ptr<ProtectionDomain>& pd, Access access);

    [[nodiscard]] std::span<std::uint8_t> bytes() const { return mapping_.bytes(); }

    ~Memory();
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    // Bytes of all Memory objects of this process. Any thread.
    [[nodiscard]] static std::size_t in_use();

 private:
    explicit Memory(Mapping mapping);
    Mapping mapping_;  // before the registrations, so that it is destroyed after them
    std::vector<std::unique_ptr<MemoryRegion>> regions_;
};

// Memory that is used over one device only: allocated and registered at once.
struct RegisteredMemory {
    static Result<RegisteredMemory> allocate(const std::shared_ptr<ProtectionDomain>& pd, std::size_t bytes,
                                             Memory::Access access);

    [[nodiscard]] std::span<std::uint8_t> bytes() const { return memory->bytes(); }
    [[nodiscard]] std::uint32_t lkey() const { return region->lkey(); }
    [[nodiscard]] RKey rkey() const { return region->rkey(); }
    [[nodiscard]] VirtualAddress address() const { return region->address(); }

    std::shared_ptr<Memory> memory;
    const MemoryRegion* region = nullptr;  // owned by `memory`
};

}  // namespace smc::roce
